package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
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

// TestPayloadsOfKeysThatExist counts in keys that are believed to be new and are not, with users
// who have the permission for RESTORE and without.
func TestPayloadsOfKeysThatExist(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	all := redisstore.Commands(redisstore.ExpiryKey)
	fewer := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == "restore" })
	for _, allowed := range [][]string{all, fewer} {
		flushAll(t, srv)
		existing(t, open(t, redisstore.Options{URL: restricted(t, srv, allowed)}))
	}
}

// existing counts in keys that another program has made, beside new ones, and sends each round
// again: each event is counted once, and the store reports of the first ones that they existed. A
// repeated reply reports only certain facts.
func existing(t *testing.T, s *redisstore.Store) {
	t.Helper()
	for n := 1; n <= layout.MaxPayloadAdds; n++ {
		key := fmt.Sprint(n)
		hash := redisstore.Key(3, nil, []byte(key))
		s.Client().HSet(t.Context(), hash, redisstore.Field(second), 1)
		r := &syncer.Round{Partition: 3, Writer: "w", Seq: uint64(n)}
		k := syncer.KeyRound{Key: []byte(key), TTL: 1000, New: true}
		for i := range n {
			k.Adds = append(k.Adds, counts(leaparray.Moment(t0+int64(i)), int64(i+1)))
		}
		fresh := k
		fresh.Key, fresh.Adds = []byte(key+" is new"), slices.Clone(k.Adds)
		r.Keys = []syncer.KeyRound{k, fresh}
		for sent := range 2 {
			if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil {
				t.Fatal(r.Err)
			}
			for j, k := range r.Keys {
				if k.Err != nil || k.Existed != (sent == 0 && j == 0) {
					t.Errorf("%s, sent %d times: existed %v, %v", k.Key, sent+1, k.Existed, k.Err)
				}
				for i, b := range k.Adds {
					if !storetest.IsStored(&b, int64(i+1)) {
						t.Errorf("%s, sent %d times: event %d is %d", k.Key, sent+1, i, b.Stored)
					}
				}
			}
		}
	}
}
