package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

const budgetParts = 64

// crowd is a counter whose keys can be chosen by partition.
type crowd struct {
	t     *testing.T
	clk   *clock
	c     *syncer.Counter
	store *embedded.Store
	next  int
}

func newCrowd(t *testing.T, memory int64) *crowd {
	s := &crowd{t: t, clk: &clock{now: t0}, store: embedded.New(embedded.Options{})}
	s.c = open(t, syncer.Options{
		Store: s.store, Now: s.clk.Now, MaxMemory: memory,
		Placement: twotier.Placement{Partitions: budgetParts, Seed: 7},
	})
	return s
}

// add counts one event of each of n new keys of a partition, and flushes them. It returns the
// number of refused keys, and the counted ones.
func (s *crowd) add(partition, n int) (refused int, keys []string) {
	s.t.Helper()
	for len(keys)+refused < n {
		s.next++
		key := fmt.Sprint("key", s.next)
		if (twotier.Placement{Partitions: budgetParts, Seed: 7}).Of(nil, []byte(key)) != partition {
			continue
		}
		err := s.c.Do(context.Background(),
			&twotier.Op{Checks: []twotier.Check{{Key: []byte(key), N: 1}}}, new(twotier.Result))
		switch {
		case err == nil:
			keys = append(keys, key)
		case errors.Is(err, twotier.ErrFull):
			refused++
		default:
			s.t.Fatal(err)
		}
	}
	flush(s.t, s.c)
	s.clk.set(s.clk.Now() + 3000) // idle from now on
	return refused, keys
}

func (s *crowd) held(keys []string) (n int) {
	for _, key := range keys {
		if s.c.Held(nil, []byte(key)).Found {
			n++
		}
	}
	return n
}

// TestOnePartitionMayHaveWhatOthersDoNotUse fills one of many partitions until nearly all of the
// memory is used.
func TestOnePartitionMayHaveWhatOthersDoNotUse(t *testing.T) {
	race.SkipLong(t)
	s := newCrowd(t, 4<<20)
	for s.c.Stats().MemoryBytes < 3<<20 {
		if refused, _ := s.add(5, 100); refused > 0 || s.c.Stats().EvictedTotal > 0 {
			t.Fatalf("%d refused: %+v", refused, s.c.Stats())
		}
	}
}

// TestSmallPartitionsTakeRoomFromALargeOne adds keys to all partitions while one of them has all
// the memory: they are admitted, and in the end each partition has its share.
func TestSmallPartitionsTakeRoomFromALargeOne(t *testing.T) {
	race.SkipLong(t)
	synctest.Test(t, func(t *testing.T) {
		s := newCrowd(t, 2<<20)
		for s.c.Stats().EvictedTotal == 0 {
			s.add(5, 100)
		}
		var all []string
		for range 10 {
			for p := range budgetParts {
				if p == 5 {
					continue
				}
				refused, keys := s.add(p, 9)
				if refused > 0 {
					t.Fatalf("partition %d: %d keys refused: %+v", p, refused, s.c.Stats())
				}
				all = append(all, keys...)
				time.Sleep(100 * time.Millisecond) // the sweep has a turn
			}
		}
		if n := s.held(all); n < len(all)*9/10 {
			t.Errorf("%d of %d keys of small partitions are in memory", n, len(all))
		}
		if m := s.c.Stats(); m.MemoryBytes > m.MaxMemory*9/8 {
			t.Errorf("%d bytes in use: %+v", m.MemoryBytes, m)
		}
		for i, key := range all { // in memory or not
			if i%20 == 0 {
				s.clk.set(s.clk.Now() + 3000)
			}
			if got := count(t, s.c, key, 86_400_000); got != 1 {
				t.Fatalf("%s counts %d", key, got)
			}
		}
	})
}

// TestLargePartitionGivesNothingUnflushed fills memory with unflushed counts. None of them is given
// up for others.
func TestLargePartitionGivesNothingUnflushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := faulty(t, faultstore.Mix{})
		store.SetDown(true)
		clk := &clock{now: t0}
		place := twotier.Placement{Partitions: budgetParts, Seed: 7}
		c := open(t, syncer.Options{Store: store, Now: clk.Now, MaxMemory: 1 << 20,
			Placement: place})
		counted := map[string]bool{}
		for i := range 20_000 {
			key := fmt.Sprint("k", i)
			if p := place.Of(nil, []byte(key)); i < 10_000 != (p == 5) {
				continue
			}
			err := c.Do(t.Context(), &twotier.Op{Checks: []twotier.Check{{Key: []byte(key), N: 1}}},
				new(twotier.Result))
			if err == nil {
				counted[key] = true
			} else if !errors.Is(err, twotier.ErrOverload) {
				t.Fatal(err)
			}
			if i%500 == 0 {
				clk.set(clk.Now() + 3000)
				time.Sleep(200 * time.Millisecond)
			}
		}
		for key := range counted {
			if h := c.Held(nil, []byte(key)); len(h.Pending) == 0 {
				t.Fatalf("%s of %d is gone unflushed", key, len(counted))
			}
		}
		store.SetDown(false)
	})
}

// TestMemoryIsBoundedWhileNothingIsIdle adds new keys and flushes them, again and again, while time
// stands still, so that no key is ever idle enough to be evicted.
func TestMemoryIsBoundedWhileNothingIsIdle(t *testing.T) {
	race.SkipLong(t)
	for _, parts := range []int{1, 8, 64} {
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Now: clk.Now, MaxMemory: 512 << 10,
			Placement: twotier.Placement{Partitions: parts}})
		refused := 0
		for i := range 20_000 {
			err := c.Do(context.Background(),
				&twotier.Op{Checks: []twotier.Check{{Key: fmt.Append(nil, "k", i), N: 1}}},
				new(twotier.Result))
			if errors.Is(err, twotier.ErrOverload) || errors.Is(err, twotier.ErrFull) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
			if i%100 == 99 {
				flush(t, c)
			}
		}
		if s := c.Stats(); refused == 0 || s.EvictedTotal > 0 || s.MemoryBytes > s.MaxMemory*5/4 {
			t.Errorf("%d partitions: %d refused, %d bytes of %d: %+v", parts, refused,
				s.MemoryBytes, s.MaxMemory, s)
		}
	}
}

// TestBusyKeysDoNotHoardMemory grows keys bucket by bucket, each step in a larger block, and checks
// how much memory they keep.
func TestBusyKeysDoNotHoardMemory(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 8},
		FlushInterval: time.Millisecond})
	const keys = 200
	for step := range 120 {
		clk.set(t0 + int64(step)*960_000/2)
		for i := range keys {
			add(t, c, fmt.Sprint("busy-", i), 1, 0)
		}
		if step%4 == 0 {
			flush(t, c)
		}
	}
	flush(t, c)
	if per := c.Stats().MemoryBytes / keys; per > 5500 {
		t.Errorf("%d bytes a key with at most 132 buckets of the finest level", per)
	}
}

// TestPoolMemoryGoesWithTheCounter opens and closes counters, and keeps none of them.
func TestPoolMemoryGoesWithTheCounter(t *testing.T) {
	if !syncer.HugePages {
		t.Skip("under the race detector, and where memory can't be mapped, it is of the Go heap")
	}
	before := mapped(t)
	var most int64
	for range 30 {
		c, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{}),
			Placement: twotier.Placement{Partitions: 4}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Open(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			add(t, c, fmt.Sprint("k", i), 1, 0)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		most = max(most, mapped(t)-before)
	}
	const one = 32 << 20
	if most < one {
		t.Fatalf("only %d bytes more were mapped than before", most)
	}
	deadline := time.Now().Add(10 * time.Second)
	for mapped(t)-before > 3*one {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes more are mapped than before", mapped(t)-before)
		}
		runtime.GC()
		runtime.Gosched()
	}
}

// mapped returns the size of this process's address space.
func mapped(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages int64
	if _, err := fmt.Sscan(string(b), &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestNamespaceHasItsMostKeys floods one namespace. It stays within its bound, new keys take the
// place of idle ones, and other namespaces are not affected.
func TestNamespaceHasItsMostKeys(t *testing.T) {
	const most = 100
	var log strings.Builder
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 8},
		Logger:     slog.New(slog.NewTextHandler(&log, nil)),
		Namespaces: map[string]syncer.Namespace{"few": {MaxKeys: most}}})
	count := func(ns, key string) error {
		op := twotier.Op{Checks: []twotier.Check{{NS: []byte(ns), Key: []byte(key), N: 1}}}
		return c.Do(context.Background(), &op, new(twotier.Result))
	}
	for i := range 3 * most {
		err := count("few", fmt.Sprint("a", i))
		if want := i >= most; errors.Is(err, twotier.ErrMaxKeys) != want ||
			errors.Is(err, twotier.ErrOverload) != want || errors.Is(err, twotier.ErrFull) {
			t.Fatalf("key %d: %v", i, err)
		}
		if err := count("", fmt.Sprint("other", i)); err != nil {
			t.Fatalf("another namespace: %v", err)
		}
	}
	if err := count("few", "a1"); err != nil {
		t.Errorf("a key that is known: %v", err)
	}
	if n := strings.Count(log.String(), "namespace=few"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log.String())
	}
	flush(t, c)
	clk.set(clk.Now() + 3000)
	for i := range most / 2 {
		if err := count("few", fmt.Sprint("b", i)); err != nil {
			t.Errorf("key %d once the others rest: %v", i, err)
		}
	}
	if n := c.Stats().Keys; n != 3*most+most {
		t.Errorf("%d keys are in memory, want %d of one namespace and %d of the other", n,
			most, 3*most)
	}
}

// TestKeysAtALimitAreTheLastToBeEvicted floods a small memory with keys. Some earlier keys, last
// used before all others, are at a limit.
func TestKeysAtALimitAreTheLastToBeEvicted(t *testing.T) {
	s := newCrowd(t, budgetParts*8<<10)
	const limited = 50
	for i := range limited {
		key := fmt.Sprint("limited", i)
		acquire(t, s.c, key, 5, 0, limits(3_600_000, 5))
		if res := acquire(t, s.c, key, 1, 0, limits(3_600_000, 5)); res.Allowed {
			t.Fatalf("%s is not at its limit", key)
		}
	}
	flush(t, s.c)
	s.clk.set(s.clk.Now() + 3000)
	for i := range 15_000 {
		if err := s.c.Do(context.Background(), addOp(fmt.Sprint("flood", i), 1, twotier.AckMemory),
			new(twotier.Result)); err != nil && !errors.Is(err, twotier.ErrFull) {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			flush(t, s.c)
			s.clk.set(s.clk.Now() + 3000)
		}
	}
	if s.c.Stats().EvictedTotal == 0 {
		t.Fatal("nothing was evicted")
	}
	gone := 0
	for i := range limited {
		if !s.c.Held(nil, fmt.Append(nil, "limited", i)).Found {
			gone++
		}
	}
	if gone > 0 {
		t.Errorf("%d of %d keys at their limit were evicted, %d keys in all", gone, limited,
			s.c.Stats().EvictedTotal)
	}
}
