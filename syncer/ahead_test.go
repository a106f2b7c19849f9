package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// tardy is a store that is slow to load one partition.
type tardy struct {
	*embedded.Store
	partition int
	until     chan struct{}
}

func (s tardy) Exchange(ctx context.Context, rounds []*syncer.Round) {
	if slices.ContainsFunc(rounds, func(r *syncer.Round) bool {
		return r.Partition == s.partition && r.Aside
	}) {
		<-s.until
	}
	s.Store.Exchange(ctx, rounds)
}

// TestAbsenceIsNotBelievedAfterAnEviction runs a batch that needs a key twice, of which the store
// has nothing when the batch begins. In between, the key is counted, flushed and pushed out of
// memory, along with few other keys or many. The absence that was reported when the batch began no
// longer holds.
func TestAbsenceIsNotBelievedAfterAnEviction(t *testing.T) {
	for name, oldest := range map[string]bool{"the oldest": true, "one of many": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAbsence(t, oldest) })
		})
	}
}

func testAbsence(t *testing.T, oldest bool) {
	place, clk := twotier.Placement{Partitions: 2}, &clock{now: t0}
	key, slow := keyIn(place, 0, "key-"), keyIn(place, 1, "slow-")
	store := tardy{embedded.New(embedded.Options{}), 1, make(chan struct{})}
	begin(store.Store, place.Partitions)
	c := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: place, Exchanges: 2,
		MaxMemory: 64 << 10, RoundTimeout: time.Minute})
	use := func(key string) {
		add(t, c, key, 1, 0)
		flush(t, c)
	}
	var crowd []string
	for i := 0; c.Stats().EvictedTotal == 0; i++ {
		crowd = append(crowd, keyIn(place, 0, fmt.Sprint("crowd-", i, "-")))
		use(crowd[i])
		clk.set(clk.Now() + 3000)
	}
	ops, res := []twotier.Op{*acquireOp(key, 1, 1), *acquireOp(slow, 1, 1), *acquireOp(key, 1, 1)},
		make([]twotier.Result, 3)
	done := make(chan struct{})
	go func() { c.DoAll(context.Background(), ops, res); close(done) }()
	synctest.Wait() // the batch waits for the slow key
	flush(t, c)
	before := c.Stats().EvictedTotal
	clk.set(clk.Now() + 10_000)
	for _, other := range crowd {
		if oldest && c.Held(nil, []byte(other)).Found {
			use(other)
		}
	}
	for i := 0; i < 1000 && (c.Held(nil, []byte(key)).Found || !oldest); i++ {
		clk.set(clk.Now() + 3000)
		use(keyIn(place, 0, fmt.Sprint("new-", i, "-")))
	}
	// The drop log holds the last 64 dropped keys.
	if n := c.Stats().EvictedTotal - before; n == 0 || oldest != (n <= 64) {
		t.Errorf("%d keys were evicted", n)
	}
	close(store.until)
	if <-done; !res[0].Allowed || res[2].Allowed {
		t.Errorf("one event is to be admitted, and one alone: %+v", res)
	}
}

// TestKeysOfFailedOperationsAreNotWaitedFor runs a batch, which requests the keys of all its
// operations before the first, and then does not carry some of these out. Nothing waits for their
// keys when the batch is over, and keys that another counter decides about are not requested at
// all.
func TestKeysOfFailedOperationsAreNotWaitedFor(t *testing.T) {
	place := twotier.Placement{Partitions: 2}
	moved, cold := keyIn(place, 0, "moved-"), keyIn(place, 1, "cold-")
	tooLong, both := *acquireOp(cold, 1, 1), *acquireOp(moved, 1, 1)
	tooLong.Checks[0].Limits[0].Window = 1 << 50
	both.Checks = append(both.Checks, acquireOp(cold, 1, 1).Checks...)
	for name, c := range map[string]struct {
		before func(c *syncer.Counter)
		ops    []twotier.Op
		most   int // keys that may be requested
	}{
		"invalid":     {func(*syncer.Counter) {}, []twotier.Op{tooLong, tooLong}, 1},
		"draining":    {(*syncer.Counter).Drain, []twotier.Op{*acquireOp(cold, 1, 1)}, 1},
		"not owned":   {stopOwningFirst, []twotier.Op{*acquireOp(moved, 1, 1)}, 0},
		"after moved": {stopOwningFirst, []twotier.Op{*acquireOp(moved, 1, 1), both}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := tardy{embedded.New(embedded.Options{}), 1, make(chan struct{})}
				begin(store.Store, place.Partitions)
				counter := open(t, syncer.Options{Store: store, Placement: place,
					RoundTimeout: time.Minute})
				c.before(counter)
				res := make([]twotier.Result, len(c.ops))
				counter.DoAll(t.Context(), c.ops, res)
				for i := range res {
					if res[i].Err == nil {
						t.Errorf("operation %d was carried out", i)
					}
				}
				if all, waited := counter.Loads(); all > c.most || waited != 0 {
					t.Errorf("%d keys are to be loaded, want at most %d; %d are waited for", all,
						c.most, waited)
				}
				close(store.until)
			})
		})
	}
}

func stopOwningFirst(c *syncer.Counter) { c.StopOwning(0) }
