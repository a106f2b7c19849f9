package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// withOnCold returns a default namespace with this setting.
func withOnCold(cold syncer.OnCold) map[string]syncer.Namespace {
	return map[string]syncer.Namespace{twotier.DefaultNamespace: {OnCold: cold}}
}

// TestOnColdSaysNothingOfARefusedKey acquires a key that the store refuses to read. OnCold has no
// effect: nothing is decided about the key, and its neighbours are decided by the store's counts.
func TestOnColdSaysNothingOfARefusedKey(t *testing.T) {
	for _, cold := range []syncer.OnCold{syncer.OnColdAllow, syncer.OnColdDeny} {
		for _, key := range []string{"bad", "/bad"} {
			t.Run(string(cold)+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testRefusedKey(t, key, cold) })
			})
		}
	}
}

func testRefusedKey(t *testing.T, bad string, cold syncer.OnCold) {
	inner, place := embedded.New(embedded.Options{}), twotier.Placement{Partitions: 1}
	before := open(t, syncer.Options{Store: inner, Placement: place})
	add(t, before, "full", 10, 0)
	flush(t, before)
	// Without its list of keys, every key is loaded.
	store := struct{ syncer.Store }{&strict{Store: inner, key: bad,
		refuses: func(*syncer.Round) bool { return true }}}
	c := open(t, syncer.Options{Store: store, Placement: place, Namespaces: withOnCold(cold)})
	ctx := context.Background()
	for range 20 {
		var res twotier.Result
		err := c.Do(ctx, acquireOp(bad, 1, 10), &res)
		if !errors.Is(err, twotier.ErrUnavailable) || errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Fatalf("the refused key: %+v, %v", res, err)
		}
		if res := acquire(t, c, "full", 1, 0, limits(3_600_000, 10)); res.Allowed || res.Degraded {
			t.Fatalf("another key: %+v", res)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if n := c.Stats().PendingBuckets; n != 0 {
		t.Errorf("%d buckets are pending: something was counted", n)
	}
	ops := []twotier.Op{*acquireOp(bad, 1, 10), *acquireOp("full", 1, 11)}
	res := make([]twotier.Result, 2)
	c.DoAll(ctx, ops, res)
	if !errors.Is(res[0].Err, twotier.ErrUnavailable) || res[1].Err != nil || !res[1].Allowed {
		t.Errorf("a batch: %+v", res)
	}
	both := *acquireOp("full", 1, 20)
	both.Checks = append(both.Checks, acquireOp(bad, 1, 10).Checks...)
	if err := c.Do(ctx, &both, new(twotier.Result)); !errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("both keys at once: %v", err)
	}
	read := counting(bad)
	read.AllowNonOwner = false
	var counts twotier.Result
	if err := c.Do(ctx, &read, &counts); err != nil || !counts.Degraded {
		t.Errorf("a count of the refused key: %+v, %v", counts, err)
	}
}

// TestOnColdSaysNothingOfAStoreThatRefuses acquires keys at their limits. The store is unreachable
// at first, then answers everything with an error, like a Redis that is loading its data, and then
// works. OnCold decides only at the beginning.
func TestOnColdSaysNothingOfAStoreThatRefuses(t *testing.T) {
	for _, cold := range []syncer.OnCold{syncer.OnColdAllow, syncer.OnColdDeny} {
		t.Run(string(cold), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStoreRefuses(t, cold) })
		})
	}
}

func testStoreRefuses(t *testing.T, cold syncer.OnCold) {
	const n = 200
	place := twotier.Placement{Partitions: 64}
	inner := embedded.New(embedded.Options{})
	before := open(t, syncer.Options{Store: inner, Placement: place})
	for i := range n {
		add(t, before, fmt.Sprint("full-", i), 10, 0)
	}
	flush(t, before)
	var now atomic.Int32
	now.Store(int32(faultstore.RequestLost))
	store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf,
		Decide: func(*syncer.Round) faultstore.Fault { return faultstore.Fault(now.Load()) }})
	c := open(t, syncer.Options{Store: store, Placement: place, LoadTimeout: 100 * time.Millisecond,
		Namespaces: withOnCold(cold)})
	ask := func(i int) (twotier.Result, error) {
		var res twotier.Result
		err := c.Do(context.Background(), acquireOp(fmt.Sprint("full-", i%n), 1, 10), &res)
		return res, err
	}
	for range 3 { // until the store is known to be down
		_, _ = ask(0)
		time.Sleep(time.Second)
	}
	if res, err := ask(1); err != nil || !res.Degraded ||
		res.Allowed != (cold == syncer.OnColdAllow) {
		t.Errorf("out of reach: %+v, %v", res, err)
	}
	now.Store(int32(faultstore.WriteRefused)) // reads as well
	time.Sleep(3 * time.Second)               // each partition has been asked again
	for i := range 100 {
		if res, err := ask(i); !errors.Is(err, twotier.ErrUnavailable) {
			t.Fatalf("refusing, after %d answers: %+v, %v", i, res, err)
		}
	}
	now.Store(int32(faultstore.None))
	time.Sleep(3 * time.Second)
	for i := 10; i < n; i++ {
		if res, err := ask(i); err != nil || res.Allowed || res.Degraded {
			t.Fatalf("afterwards: %+v, %v", res, err)
		}
	}
}

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
