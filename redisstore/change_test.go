package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestSequencesThatExpiredAreNoLoss: a counter knows of a change, and reads more after the sequence
// of the change's writer has gone. That is a loss, unless the change is so old that the sequence
// has expired.
func TestSequencesThatExpiredAreNoLoss(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	exchange := func(r *syncer.Round) *syncer.Round {
		s.Exchange(t.Context(), []*syncer.Round{r})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	key := syncer.KeyRound{Key: []byte("a"), Adds: []syncer.Bucket{counts(second, 1)}}
	gone := exchange(&syncer.Round{Writer: "gone", Seq: 1, Keys: []syncer.KeyRound{key}})
	exchange(&syncer.Round{Writer: "other", Seq: 1, Keys: []syncer.KeyRound{key}})
	srv.Do("DEL", "tt:{p0}!w:gone")
	for age, lost := range map[time.Duration]bool{time.Minute: true, 30 * time.Hour: false} {
		change := fmt.Sprintf("1 %d tt:{p0}!w:gone", time.Now().Add(-age).Unix())
		for _, readOnly := range []bool{false, true} {
			r := exchange(&syncer.Round{Writer: "reader", Epoch: gone.Epoch, LastChange: change,
				ReadOnly: readOnly, Keys: []syncer.KeyRound{{Key: key.Key, Load: true}}})
			if r.Lost != lost {
				t.Errorf("after %v, read only %v: lost %v, want %v", age, readOnly, r.Lost, lost)
			}
		}
	}
}
