package redisstore_test

import (
	"reflect"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestStoredFindsEveryPlacement counts keys with and without hash tags, placed in every way. A
// store with other options finds them, and has written nothing that it would compare.
func TestStoredFindsEveryPlacement(t *testing.T) {
	t.Parallel()
	for _, tags := range []twotier.HashTags{nil, {"sms": true}, {"sms": true, "login": true},
		{"default": true}, {"default": true, "login": false, "sms": false}} {
		for _, expiry := range redistest.Expiries(t, redistest.Start(t)) {
			srv := redistest.Start(t)
			other := open(t, redisstore.Options{URL: srv.URL(), Prefix: "staging"})
			if got, err := other.Stored(t.Context(), nil, []byte("k")); err != nil || got != nil {
				t.Fatalf("%v, %v before anything is counted", got, err)
			}
			s := open(t, redisstore.Options{URL: srv.URL(), Prefix: "staging",
				Expiry: redisstore.Expiry(expiry), Placement: twotier.Placement{
					Partitions: 1021, Seed: 1<<64 - 5, HashTags: tags}})
			works(t, s)
			for i, ns := range []string{"", "sms", "login"} {
				for j, key := range []string{"{a}b", "plain"} {
					k := syncer.KeyRound{TTL: 3_600_000, Adds: []syncer.Bucket{
						counts(leaparray.Moment(t0+1), 2), counts(leaparray.Moment(t0), 300),
						counts(leaparray.Stretch{Start: t0 - t0%1000 - 1000, Width: 1000}, 5)}}
					k.NS, k.Key = []byte(ns), []byte(key)
					r := &syncer.Round{Writer: "stored", Seq: uint64(2*i + j + 1),
						Keys: []syncer.KeyRound{k}}
					r.Partition = s.Placement().Of(k.NS, k.Key)
					send(t, s, r)
					got, err := other.Stored(t.Context(), k.NS, k.Key)
					want := []redisstore.StoredCell{{t0 + 1, 1, 2}, {t0, 1, 300},
						{t0 - t0%1000 - 1000, 1000, 5}}
					if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0].Cells, want) ||
						got[0].Events != 307 || got[0].TTL < 3_500_000 ||
						got[0].Hash != s.Name(r.Partition, k.NS, k.Key) {
						t.Errorf("%q %v %s in %q: %+v, %v", tags, expiry, key, ns, got, err)
					}
				}
			}
		}
	}
}

// TestStoredRefusesOtherLayouts has no wrong answer about data that it can't read.
func TestStoredRefusesOtherLayouts(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	works(t, s)
	for field, bad := range map[string]string{"layout": "3", "partitions": "", "hash-seed": "x"} {
		good := srv.Do("HGET", "tt:meta", field).Val()
		must.Succeed(t, srv.Do("HSET", "tt:meta", field, bad).Err())
		if got, err := s.Stored(t.Context(), nil, []byte("k")); err == nil || got != nil {
			t.Errorf("%s = %q: %v, %v", field, bad, got, err)
		}
		must.Succeed(t, srv.Do("HSET", "tt:meta", field, good).Err())
	}
}
