package redisstore_test

import (
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

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
					if b.Stored != int64(i+1) {
						t.Errorf("%s, sent %d times: event %d is %d", k.Key, sent+1, i, b.Stored)
					}
				}
			}
		}
	}
}
