package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// with returns a check of a key with a limit on its sum in an hour.
func with(key string, n, most int64) twotier.Check {
	c := checkOf(key, n)
	c.Limits = limits(3_600_000, most)
	return c
}

// acquireAll acquires checks together.
func acquireAll(t *testing.T, c *syncer.Counter, checks ...twotier.Check) twotier.Result {
	t.Helper()
	return do(t, c, twotier.Op{Kind: twotier.Acquire, Checks: checks})
}

// TestRoomForValues: a refusal names the moment from which on there is room, to the millisecond, in
// memory and after the key was read again.
func TestRoomForValues(t *testing.T) {
	clk := &clock{now: t0}
	opt := syncer.Options{Now: clk.Now, Store: embedded.New(embedded.Options{
		Now: func() time.Time { return time.UnixMilli(clk.Now()) }})}
	c := open(t, opt)
	first := with("/k", 1, 2)
	acquireAll(t, c, first)
	clk.set(t0 + 7000)
	acquireAll(t, c, with("/k", 1, 2))
	clk.set(t0 + 67_000)
	retry := int64(3_600_000 - 67_000)
	if res := acquireAll(t, c, with("/k", 1, 2)); res.Allowed || res.RetryAfter != retry {
		t.Fatalf("%+v, want a retry after %d", res, retry)
	}
	flush(t, c)
	again := open(t, opt)
	clk.set(t0 + 3_600_000 - 1)
	if res := acquireAll(t, again, with("/k", 1, 2)); res.Allowed || res.RetryAfter != 1 {
		t.Errorf("a millisecond before, read again: %+v", res)
	}
	clk.set(t0 + 3_600_000)
	if res := acquireAll(t, again, with("/k", 1, 2)); !res.Allowed {
		t.Errorf("at that moment: %+v", res)
	}
}

// TestValuesThatTheStoreLostAreAcknowledgedOnceTheyAreBack adds values that the store has lost
// without the counter's knowledge, as seen at the same time as before, or earlier.
func TestValuesThatTheStoreLostAreAcknowledgedOnceTheyAreBack(t *testing.T) {
	for _, ts := range []int64{0, t0 - 1000} {
		synctest.Test(t, func(t *testing.T) {
			co := newCompany(t, 1, nil)
			op := twotier.Op{Kind: twotier.Add, Ack: twotier.AckStore,
				Checks: []twotier.Check{checkOf("/k", 3)}}
			do(t, co.counters[0], op)
			co.store.Flush()
			op.TS = ts
			do(t, co.counters[0], op)
			if got := co.stored("/k"); got != 3 {
				t.Errorf("seen at %d: acknowledged, and the store has %d of 3", ts, got)
			}
		})
	}
}

// TestMemoryFullOfUnflushedValues adds values to large keys, one of them as large as any, until
// there is no memory for more. None is given up, and all are in the store once it can be reached.
func TestMemoryFullOfUnflushedValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := embedded.New(embedded.Options{})
		store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf})
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Store: store, Now: clk.Now, MaxMemory: 1 << 20,
			Placement: twotier.Placement{Partitions: 1}, Namespaces: map[string]syncer.Namespace{
				twotier.DefaultNamespace: {MostValues: syncer.MostValues}}})
		store.SetDown(true)
		const each = 1000
		held := []int64{0}
		var err error
		for err == nil {
			if most := []int64{20_000, 3000}[min(1, len(held)-1)]; held[len(held)-1] == most {
				held = append(held, 0)
				clk.set(clk.Now() + 3000)
				time.Sleep(200 * time.Millisecond)
			}
			op := addOp(fmt.Sprint("/", len(held)), each, twotier.AckMemory)
			if err = c.Do(t.Context(), op, new(twotier.Result)); err == nil {
				held[len(held)-1] += each
			}
			if s := c.Stats(); s.MemoryBytes > s.MaxMemory*5/4 || s.EvictedTotal > 0 {
				t.Fatalf("after %v: %+v", held, s)
			}
		}
		if !errors.Is(err, twotier.ErrOverload) || len(held) < 3 {
			t.Errorf("after %v: %v", held, err)
		}
		all, unflushed := int64(0), int64(0)
		for i, want := range held {
			all += want
			wantCount(t, c, fmt.Sprint("/", i+1), 60_000, want)
		}
		c.EachUnflushed(func(_, _ []byte, n int64) { unflushed += n })
		if unflushed != all {
			t.Errorf("%d values are reported as unflushed, want %d", unflushed, all)
		}
		store.SetDown(false)
		flush(t, c)
		if s := c.Stats(); s.MemoryBytes > s.MaxMemory*5/4 {
			t.Errorf("after the outage: %+v", s)
		}
		for i, want := range held {
			key := fmt.Sprint("/", i+1)
			if got := sumOf(key, inner.Get(0, spaceOf(key), []byte(key))); got != want {
				t.Errorf("the store has %d values of key %d, want %d", got, i+1, want)
			}
		}
	})
}

// BenchmarkValues acquires one value of a key with many values, under two limits: a known value, a
// new one, and one that is refused.
func BenchmarkValues(b *testing.B) {
	for _, held := range []int{8, 300, 4000} {
		for _, kind := range []string{"known", "new", "refused"} {
			b.Run(fmt.Sprintf("%s/%d", kind, held), func(b *testing.B) {
				benchValues(b, kind, held)
			})
		}
	}
}

func benchValues(b *testing.B, kind string, held int) {
	c := openAlone(b, syncer.Options{Namespaces: map[string]syncer.Namespace{
		"default": {MostValues: syncer.MostValues}}})
	most := int64(1 << 30)
	if kind == "refused" {
		most = int64(held)
	}
	check := checkOf("/k", int64(held))
	known := check.Values[held/2]
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check}}
	var res twotier.Result
	if err := c.Do(context.Background(), &op, &res); err != nil {
		b.Fatal(err)
	}
	check.Limits = []twotier.Limit{{Window: 60_000, Max: most}, {Window: 86_400_000, Max: most}}
	check.Values, check.N = []uint64{known}, 1
	op = twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{check}}
	i := uint64(0)
	for b.Loop() {
		if i++; kind != "known" {
			op.Checks[0].Values[0] = leaparray.CleanHash((i*0x9e3779b97f4a7c15)<<1 | 1)
		}
		if kind == "new" && i%256 == 0 {
			b.StopTimer()
			if err := c.ResetKey(context.Background(), check.NS, check.Key); err != nil {
				b.Fatal(err)
			}
			again := checkOf("/k", int64(held))
			if err := c.Do(context.Background(), &twotier.Op{Kind: twotier.Add,
				Checks: []twotier.Check{again}}, &res); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		if err := c.Do(context.Background(), &op, &res); err != nil ||
			res.Allowed == (kind == "refused") {
			b.Fatal(err, res)
		}
	}
}
