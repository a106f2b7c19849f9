package syncer_test

import (
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

// TestStoreThatSlowsDownAtOnce: the store suddenly takes ten times as long when as many keys wait
// for it as allowed, new or known ones. No count becomes older than the lag. If the store takes
// forty times as long, none becomes older than four times the lag.
func TestStoreThatSlowsDownAtOnce(t *testing.T) {
	race.SkipLong(t)
	known := func(caller, i int) string { return fmt.Sprint("known-", caller, "-", i%2000) }
	for name, tt := range map[string]struct {
		keys  func(caller, i int) string
		times int64
		most  time.Duration
	}{
		"new keys, tenfold":     {newKeys, 10, testLag},
		"known keys, tenfold":   {known, 10, testLag},
		"known keys, fortyfold": {known, 40, 4 * testLag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newPaced(perKey)
				c := openLagging(t, store)
				f := (&flood{t: t, c: c, patience: 200 * time.Millisecond, name: tt.keys}).start(8)
				before := oldest(c, 10*time.Second)
				store.perKey.Store(tt.times * int64(perKey))
				most := oldest(c, 15*time.Second)
				f.end()
				t.Logf("the oldest count was %v old, then %v", before, most)
				if most > tt.most || most < 2*before {
					t.Errorf("the oldest was %v old, and %v before; want at most %v", most, before,
						tt.most)
				}
				store.perKey.Store(int64(perKey) / 100)
				flush(t, c)
			})
		})
	}
}
