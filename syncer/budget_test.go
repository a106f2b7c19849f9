package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
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
