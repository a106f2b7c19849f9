package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestNewKeysSurviveAReplay counts the same events in many new keys, which Redis makes by RESTORE
// if their fields don't expire, and has Redis read its append-only file again. Before and after,
// all keys have the same counts and expire at the same time, and so do their fields if these
// expire.
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
		// The store has tried RESTORE once when it was opened.
		if stats := srv.Do("INFO", "commandstats").String(); expiry == "key" &&
			!strings.Contains(stats, "cmdstat_restore:calls=21,") {
			t.Errorf("not every key was made by RESTORE: %s", stats)
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
	for _, b := range k.Adds {
		ends, err := srv.Do("HPEXPIRETIME", key, "FIELDS", 1,
			redisstore.Field(b.Stretch)).Int64Slice()
		if err != nil || len(ends) != 1 || ends[0] <= 0 {
			t.Fatalf("%s: a field expires at %v: %v", key, ends, err)
		}
		all += fmt.Sprint(" ", ends)
	}
	return all
}
