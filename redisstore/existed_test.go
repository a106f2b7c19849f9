package redisstore_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestKeysThatWereNotNew puts other programs' values under keys that are believed to be new: the
// store reports that of each, and of no other.
func TestKeysThatWereNotNew(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, expiry := range redistest.Expiries(t, srv) {
		if expiry == "tairhash" {
			continue // has no copies
		}
		t.Run(expiry, func(t *testing.T) {
			flushAll(t, srv)
			s := open(t, redisstore.Options{URL: srv.URL(), Expiry: redisstore.Expiry(expiry)})
			for _, alien := range []string{"alone", "among others"} {
				key := redisstore.Key(3, nil, []byte(alien))
				s.Client().HSet(t.Context(), key, redisstore.Field(second), 1)
				if err := s.Client().PExpire(t.Context(), key, time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
			}
			seq := uint64(0)
			for _, names := range [][]string{{"alone"}, {"a", "b", "among others", "c"}, {"d"}} {
				seq++
				r := &syncer.Round{Partition: 3, Writer: "w", Seq: seq}
				for _, name := range names {
					r.Keys = append(r.Keys, syncer.KeyRound{Key: []byte(name), TTL: 1000, New: true,
						Adds: []syncer.Bucket{counts(leaparray.Moment(t0), 1)}})
				}
				for sent := range 2 { // a repeated reply reports only certain facts
					if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil {
						t.Fatal(r.Err)
					}
					for _, k := range r.Keys {
						existed := len(k.Key) > 1 && sent == 0
						if k.Err != nil || k.Adds[0].Stored != 1 || k.Existed != existed {
							t.Errorf("%s: stored %d, existed %v: %v", k.Key, k.Adds[0].Stored,
								k.Existed, k.Err)
						}
					}
				}
			}
		})
	}
}
