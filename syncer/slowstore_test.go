package syncer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

// slowStore takes its time for each round. An exchange that exceeds its deadline has no effect.
type slowStore struct {
	*embedded.Store
	each atomic.Int64 // ns
}

func (s *slowStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	took := time.Duration(int64(len(rounds)) * s.each.Load())
	if took == 0 {
		s.Store.Exchange(ctx, rounds)
		return
	}
	select {
	case <-time.After(took):
		s.Store.Exchange(ctx, rounds)
	case <-ctx.Done():
		for _, r := range rounds {
			r.Err = ctx.Err()
		}
	}
}

// TestSlowStoreGetsNoMoreThanItTakes has a store that takes 100 rounds within the deadline of an
// exchange. A few keys are flushed while all partitions have to be verified, which would be 256
// rounds at once: these fail, and must not take the place of the few again and again.
func TestSlowStoreGetsNoMoreThanItTakes(t *testing.T) {
	race.SkipLong(t)
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: embedded.New(embedded.Options{})}
		place := twotier.Placement{Partitions: 1021}
		c := open(t, syncer.Options{Store: s, Placement: place, RoundTimeout: time.Second,
			FlushInterval: 200 * time.Millisecond, Exchanges: 1})
		for i := range place.Partitions {
			add(t, c, keyIn(place, i, "k"), 1, 0)
		}
		if err := c.Flush(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		s.each.Store(int64(10 * time.Millisecond))
		for i, end := 0, time.Now().Add(time.Minute); time.Now().Before(end); i++ {
			began := time.Now()
			for j := range 10 {
				add(t, c, keyIn(place, 100*j, fmt.Sprint("k", i)), 1, 0)
			}
			if err := c.Flush(within(t, time.Minute)); err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
		}
	})
}

// TestAPauseIsNotDown asks for keys at their limits while nothing at all comes from the store for
// nearly two timeouts. Only after that does the store count as down.
func TestAPauseIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		inner := embedded.New(embedded.Options{})
		before := open(t, syncer.Options{Store: inner})
		for i := range n {
			add(t, before, fmt.Sprint("full-", i), 1, 0)
		}
		flush(t, before)
		store := newSerialStore(t, inner, time.Microsecond)
		for _, pause := range []time.Duration{1900 * time.Millisecond, 4 * time.Second} {
			c := open(t, syncer.Options{Store: store, RoundTimeout: time.Second})
			go store.pause(pause)
			time.Sleep(time.Millisecond)
			var crowd sync.WaitGroup
			var allowed atomic.Int64
			for i := range n {
				crowd.Go(func() {
					var res twotier.Result
					key := fmt.Sprint("full-", i)
					err := c.Do(within(t, 3*time.Second), acquireOp(key, 1, 1), &res)
					if err != nil {
						t.Errorf("%s: %v", key, err)
					} else if res.Allowed {
						allowed.Add(1)
					}
				})
			}
			down := pause > 2*time.Second
			if crowd.Wait(); allowed.Load() > 0 != down {
				t.Errorf("after a pause of %v, %d are let through", pause, allowed.Load())
			}
			time.Sleep(5 * time.Second)
		}
	})
}
