package redisstore_test

import (
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestNewKeysSurviveAReplay counts the same events in many new keys, and has Redis read its
// append-only file again. Before and after, all keys have the same counts and expire at about the
// same time, and so do their fields if these expire.
func TestNewKeysSurviveAReplay(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.AOF(), redistest.Config("appendfsync always"))
	for _, expiry := range redistest.Expiries(t, srv) {
		if expiry == "tairhash" {
			continue // the stand-in for TairHash has no append-only file
		}
		flushAll(t, srv)
		s := open(t, redisstore.Options{URL: srv.URL(), Expiry: redisstore.Expiry(expiry)})
		r := &syncer.Round{Writer: "w", Seq: 1}
		for i := range 20 {
			r.Keys = append(r.Keys, syncer.KeyRound{Key: fmt.Append(nil, "new-", i), New: true,
				TTL: 3_600_000, Adds: []syncer.Bucket{counts(leaparray.Moment(t0), 2),
					counts(leaparray.Moment(t0-5000), 2)}})
		}
		if send(t, s, r); r.Err != nil || r.Lost {
			t.Fatal(r.Err, r.Lost)
		}
		want := everything(t, srv, expiry, &r.Keys[0])
		for replayed := range 2 {
			for i := range r.Keys {
				if got := everything(t, srv, expiry, &r.Keys[i]); got != want {
					t.Errorf("%s: %s has %s, want %s; replayed %d times", expiry, r.Keys[i].Key,
						got, want, replayed)
				}
			}
			srv.Restart(t)
		}
	}
}

// everything returns a key's fields, and the times at which the key and the fields expire.
func everything(t *testing.T, srv *redistest.Server, expiry string, k *syncer.KeyRound) string {
	t.Helper()
	key := redisstore.Key(0, k.NS, k.Key)
	fields, err := srv.Do("HGETALL", key).Result()
	if err != nil {
		t.Fatal(err)
	}
	ends, err := srv.Do("PEXPIRETIME", key).Int64()
	if err != nil || ends <= 0 {
		t.Fatalf("%s expires at %d: %v", key, ends, err)
	}
	all := fmt.Sprint(fields, ends)
	if expiry != "field" {
		return all
	}
	for i := 0; i < len(redisstore.Fields(k.Adds...)); i += 2 {
		ends, err := srv.Do("HPEXPIRETIME", key, "FIELDS", 1,
			redisstore.Fields(k.Adds...)[i]).Int64Slice()
		if err != nil || len(ends) != 1 || ends[0] <= 0 {
			t.Fatalf("%s: a field expires at %v: %v", key, ends, err)
		}
		all += fmt.Sprint(" ", ends)
	}
	return all
}

// TestNewKeysThatExist counts in keys that another program has made although they are believed to
// be new, beside new ones, and sends the round again: each event is counted once, and the store has
// read the first ones.
func TestNewKeysThatExist(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	k := syncer.KeyRound{Key: []byte("there"), TTL: 1000,
		Adds: []syncer.Bucket{counts(second, 1)}}
	send(t, s, &syncer.Round{Writer: "v", Seq: 1, Keys: []syncer.KeyRound{k}})
	k.New, k.Adds = true, []syncer.Bucket{counts(second, 2), counts(leaparray.Moment(t0), 3)}
	fresh := k
	fresh.Key, fresh.Adds = []byte("new"), slices.Clone(k.Adds)
	r := &syncer.Round{Writer: "w", Seq: 1, Keys: []syncer.KeyRound{k, fresh}}
	for sent := range 2 {
		if send(t, s, r); r.Err != nil {
			t.Fatal(r.Err)
		}
		there, isNew := &r.Keys[0], &r.Keys[1]
		if !there.Read || isNew.Read != (sent == 1) {
			t.Errorf("sent %d times: read %v and %v", sent+1, there.Read, isNew.Read)
		}
		if got := contentOf(there.Loaded); got.sum() != 6 || got[second] != 3 {
			t.Errorf("sent %d times: %v", sent+1, got)
		}
		if got := cellsOf(t, s, "key", "new"); got.sum() != 5 {
			t.Errorf("sent %d times: %v", sent+1, got)
		}
	}
}
