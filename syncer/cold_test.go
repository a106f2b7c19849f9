package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
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
