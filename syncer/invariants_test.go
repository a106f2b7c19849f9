package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

func faulty(t testing.TB, mix faultstore.Mix) (*faultstore.Store, *embedded.Store) {
	inner := embedded.New(embedded.Options{})
	return faultstore.New(faultstore.Options{Store: inner, Decide: faultstore.Random(1, mix),
		Report: t.Errorf}), inner
}

// TestI2I3ConcurrentCountsArriveOnce counts from many goroutines over a store that loses every
// other message.
func TestI2I3ConcurrentCountsArriveOnce(t *testing.T) {
	store, inner := faulty(t, faultstore.Mix{ReplyLost: 200, RequestLost: 100, Late: 150,
		Refused: 50})
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: store, Now: clk.Now, FlushInterval: time.Millisecond,
		Placement: twotier.Placement{Partitions: 7}})
	const goroutines, each, keys = 16, 400, 20
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range each {
				add(t, c, fmt.Sprint("k", i%keys), 1, 0)
			}
		})
	}
	wg.Wait()
	flush(t, c)
	store.Deliver()
	for i := range keys {
		key := fmt.Sprint("k", i)
		got := inner.Sum(twotier.Placement{Partitions: 7}.Of(nil, []byte(key)), nil, []byte(key))
		if got != goroutines*each/keys {
			t.Errorf("%s: %d in the store, want %d", key, got, goroutines*each/keys)
		}
	}
}

// TestI6NeverMoreThanTheLimit lets 50 goroutines compete for 1000.
func TestI6NeverMoreThanTheLimit(t *testing.T) {
	store, _ := faulty(t, faultstore.Mix{ReplyLost: 100, RequestLost: 100})
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: store, Now: clk.Now})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 40 {
				if acquire(t, c, "k", 1, 0, limits(60_000, 1000)).Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 1000 || count(t, c, "k", 60_000) != 1000 {
		t.Errorf("%d admitted, %d counted, want 1000", n, count(t, c, "k", 60_000))
	}
}

// TestI7BoundedWithoutTheStore counts for two days of cluster time with the store down. Known keys
// stay right, the ladder bounds the pending counts, and once memory is full of unflushed counts,
// new keys are refused.
func TestI7BoundedWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := faulty(t, faultstore.Mix{})
		store.SetDown(true)
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Store: store, Now: clk.Now,
			Placement: twotier.Placement{Partitions: 2}, MaxMemory: 2 * 512 << 10})
		const keys = 10
		for range 2 * 24 * 60 {
			clk.set(clk.Now() + 60_000)
			for i := range keys {
				add(t, c, fmt.Sprint("k", i), 1, 0)
			}
			time.Sleep(time.Millisecond)
		}
		if n := c.Stats().PendingBuckets; n > keys*int64(leaparray.Default().MaxCells()) {
			t.Errorf("%d buckets are pending", n)
		}
		accepted := 0
		var res twotier.Result
		var err error
		for err == nil && accepted < 100_000 {
			err = c.Do(t.Context(),
				&twotier.Op{Checks: []twotier.Check{{Key: fmt.Append(nil, "new", accepted), N: 1}}},
				&res)
			accepted++
		}
		if !errors.Is(err, twotier.ErrOverload) {
			t.Errorf("%d new keys: %v", accepted, err)
		}
		if s := c.Stats(); s.MemoryBytes > 3*s.MaxMemory || s.EvictedTotal > 0 {
			t.Errorf("stats %+v", s)
		}
		for i := range accepted - 1 {
			if h := c.Held(nil, fmt.Append(nil, "new", i)); len(h.Pending) == 0 {
				t.Fatalf("new%d of %d is gone unflushed", i, accepted)
			}
		}
		for i := range keys {
			if got := count(t, c, fmt.Sprint("k", i), 60*60_000); got < 59 || got > 61 {
				t.Errorf("k%d: %d in an hour, want 60", i, got)
			}
		}
		store.SetDown(false)
	})
}

// TestI9CloseSaysWhatIsLeft closes over a store that is down. The bubble checks that no goroutine
// is left running.
func TestI9CloseSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := faulty(t, faultstore.Mix{})
		store.SetDown(true)
		c, err := syncer.New(syncer.Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		add(t, c, "k", 1, 0)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = c.Close(ctx)
		if !errors.Is(err, twotier.ErrUnknownOutcome) ||
			!strings.Contains(fmt.Sprint(err), "1 buckets") {
			t.Errorf("Close: %v", err)
		}
		if again := c.Close(ctx); !errors.Is(again, err) {
			t.Errorf("Close again: %v", again)
		}
		if err := c.Do(ctx, &twotier.Op{Checks: []twotier.Check{{Key: []byte("k"), N: 1}}},
			new(twotier.Result)); !errors.Is(err, twotier.ErrClosed) {
			t.Errorf("Do after Close: %v", err)
		}
	})
}

// TestI12ManyCountersInOneProcess runs a hundred counters on one store.
func TestI12ManyCountersInOneProcess(t *testing.T) {
	before := runtime.NumGoroutine()
	store, _ := faulty(t, faultstore.Mix{ReplyLost: 20, Late: 20})
	clk := &clock{now: t0}
	var counters []*syncer.Counter
	for range 100 {
		c, err := syncer.New(syncer.Options{Store: store, Now: clk.Now,
			Placement: twotier.Placement{Partitions: 5}, Exchanges: 1})
		if err == nil {
			err = c.Open(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		counters = append(counters, c)
		add(t, c, "shared", 1, 0)
		add(t, c, fmt.Sprint("own", len(counters)), 1, 0)
	}
	last := counters[0]
	for _, c := range counters[1:] {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	flush(t, last)
	fresh := open(t, syncer.Options{Store: store, Now: clk.Now,
		Placement: twotier.Placement{Partitions: 5}})
	res := twotier.Result{Degraded: true}
	for i := 0; i < 100 && res.Degraded; i++ { // two replies in a row may get lost
		res = do(t, fresh, twotier.Op{Kind: twotier.Count,
			Checks: []twotier.Check{{Key: []byte("shared"), Limits: limits(60_000, 0)}}})
		time.Sleep(10 * time.Millisecond)
	}
	if got := res.Checks[0].Limits[0].Hi; res.Degraded || got != 100 {
		t.Errorf("100 counters counted %d, degraded: %v", got, res.Degraded)
	}
	if err := errors.Join(last.Close(t.Context()), fresh.Close(t.Context())); err != nil {
		t.Error(err)
	}
	n := runtime.NumGoroutine()
	for i := 0; i < 500 && n > before+5; i++ { // finished ones have yet to exit
		time.Sleep(10 * time.Millisecond)
		n = runtime.NumGoroutine()
	}
	if n > before+5 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// TestKnownKeysTakeNoMemory checks that the hot path does not allocate.
func TestKnownKeysTakeNoMemory(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, FlushInterval: time.Hour})
	key := []byte("k")
	plain := twotier.Op{Checks: []twotier.Check{{Key: key, N: 1}}}
	limited := twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{{Key: key, N: 1, Limits: limits(60_000, 1<<40, 86_400_000, 1<<40)}}}
	var res twotier.Result
	for name, op := range map[string]*twotier.Op{"add": &plain, "acquire": &limited} {
		do := func() {
			if err := c.Do(context.Background(), op, &res); err != nil {
				t.Fatal(err)
			}
		}
		do()
		if n := testing.AllocsPerRun(200, do); n != 0 && !race.Enabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
