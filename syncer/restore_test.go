package syncer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier/internal/embedded"
	"twotier/syncer"
)

// choosy refuses one key of restorations so many times.
type choosy struct {
	*embedded.Store
	key     string
	refuses atomic.Int64
}

func (s *choosy) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		at := -1
		for i := range r.Keys {
			if r.Republish && string(r.Keys[i].Key) == s.key && s.refuses.Add(-1) >= 0 {
				at = i
			}
		}
		if at < 0 {
			s.Store.Exchange(ctx, []*syncer.Round{r})
			continue
		}
		all := r.Keys
		r.Keys = append(append([]syncer.KeyRound{}, all[:at]...), all[at+1:]...)
		s.Store.Exchange(ctx, []*syncer.Round{r})
		copy(all, r.Keys[:at])
		copy(all[at+1:], r.Keys[at:])
		r.Keys, all[at].Err = all, fmt.Errorf("%w: another type", syncer.ErrNotApplied)
	}
}

// TestAKeyRefusedDuringARestorationIsToldAgain has a store lose everything and then refuse a key that is being restored, as Redis does
// with one whose name has another type for a moment.
func TestAKeyRefusedDuringARestorationIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &choosy{Store: embedded.New(embedded.Options{}), key: "bad"}
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Store: store, Now: clk.Now, VerifyInterval: time.Second, Placement: syncer.Placement{Partitions: 1}})
		for _, key := range []string{"a", "bad", "c"} {
			add(t, c, key, 7, 0)
		}
		flush(t, c)
		store.refuses.Store(2)
		store.Flush()
		time.Sleep(10 * time.Second)
		if left := store.refuses.Load(); left > 0 {
			t.Fatalf("nothing was restored: %d", left)
		}
		for _, key := range []string{"a", "bad", "c"} {
			if got := count(t, c, key, 60_000); got != 7 {
				t.Errorf("%s counts %d", key, got)
			}
			if got := store.Get(0, nil, []byte(key)); len(got) != 3 {
				t.Errorf("%s is in the store as %+v", key, got)
			}
		}
	})
}
