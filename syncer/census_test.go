package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"twotier/internal/embedded"
	"twotier/syncer"
)

// counted is a meter that can tell its keys. meanwhile is called once all have been told; only so many times are they, if it is set.
type counted struct {
	*meter
	keys      *embedded.Store
	mu        sync.Mutex
	meanwhile func()
	only      int
	told      int
}

func newCounted() *counted {
	store := embedded.New(embedded.Options{})
	return &counted{meter: &meter{Store: store, reads: map[string]int{}}, keys: store}
}

func (s *counted) Keys(ctx context.Context, fn func(partition int, ns, key []byte)) error {
	err := s.keys.Keys(ctx, fn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meanwhile != nil {
		s.meanwhile()
		s.meanwhile = nil
	}
	if s.told++; s.only > 0 && s.told > s.only {
		return errors.New("not again")
	}
	return err
}

func (s *counted) readsOf(key string) int {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	return s.reads[key]
}

// known waits until a counter knows of so many partitions which keys the store has.
func known(t testing.TB, c *syncer.Counter, partitions int64) {
	t.Helper()
	for range 2000 {
		if c.Stats().KnownPartitions == partitions {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d partitions are known, want %d", c.Stats().KnownPartitions, partitions)
}

func one(key string) syncer.Op {
	return syncer.Op{Kind: syncer.Acquire, Checks: []syncer.Check{{Key: []byte(key), N: 1, Limits: limits(60_000, 5)}}}
}

// TestNewKeysAreNotLookedFor has a counter start on a store with keys: those it reads, others it need not.
func TestNewKeysAreNotLookedFor(t *testing.T) {
	store := newCounted()
	before := open(t, syncer.Options{Store: store})
	for i := range 500 {
		add(t, before, fmt.Sprint("old", i), 5, 0)
	}
	flush(t, before)
	store.meter.mu.Lock()
	clear(store.reads)
	store.meter.mu.Unlock()
	c := open(t, syncer.Options{Store: store})
	known(t, c, syncer.DefaultPartitions)
	for i := range 500 {
		if res := do(t, c, one(fmt.Sprint("old", i))); res.Allowed {
			t.Fatalf("old%d: admitted", i)
		}
		if res := do(t, c, one(fmt.Sprint("new", i))); !res.Allowed || res.Degraded {
			t.Fatalf("new%d: %+v", i, res)
		}
	}
	looked := 0
	for i := range 500 {
		if n := store.readsOf(fmt.Sprint("old", i)); n != 1 {
			t.Errorf("old%d was read %d times", i, n)
		}
		looked += store.readsOf(fmt.Sprint("new", i))
	}
	if looked > 25 { // a filter may err for a few
		t.Errorf("%d of 500 new keys were looked for", looked)
	}
	flush(t, c)
	if n := count(t, open(t, syncer.Options{Store: store}), "new7", 60_000); n != 1 {
		t.Errorf("another counter finds %d for new7, want 1", n)
	}
}

// TestCensusHearsOfOthers has another counter count keys in a store that had none: at the latest with the next verification, and
// while a census is taken, the first one notices.
func TestCensusHearsOfOthers(t *testing.T) {
	for _, when := range []string{"after", "during"} {
		t.Run(when, func(t *testing.T) {
			store := newCounted()
			other := open(t, syncer.Options{Store: store})
			others := func() {
				for i := range 50 {
					add(t, other, fmt.Sprint("k", i), 5, 0)
				}
				flush(t, other)
			}
			if when == "during" {
				store.meanwhile = others
			}
			c := open(t, syncer.Options{Store: store, VerifyInterval: 10 * time.Millisecond, Placement: syncer.Placement{}})
			known(t, c, syncer.DefaultPartitions)
			if when == "after" {
				// From now on what was known has to be forgotten, as nobody tells it again.
				store.mu.Lock()
				store.only = store.told
				store.mu.Unlock()
				count(t, c, "k0", 60_000) // 0, and it relies on that
				others()
			}
			for i := range 50 {
				key := fmt.Sprint("k", i)
				for range 1000 {
					if count(t, c, key, 60_000) == 5 {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				if n := count(t, c, key, 60_000); n != 5 {
					t.Fatalf("%s is %d, want 5", key, n)
				}
			}
		})
	}
}

// TestCensusAndEviction counts more keys than memory holds: what was pushed out is read back, what is new is not looked for.
func TestCensusAndEviction(t *testing.T) {
	store := newCounted()
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: syncer.Placement{Partitions: 1}, MaxMemory: 64 << 10})
	known(t, c, 1)
	const keys = 3000
	for i := range keys {
		do(t, c, one(fmt.Sprint("k", i)))
		if i%100 == 99 {
			flush(t, c)
			clk.set(clk.Now() + 3000)
		}
	}
	if s := c.Stats(); s.EvictedTotal < keys/2 || s.MemoryBytes > s.MaxMemory*5/4 {
		t.Fatalf("%d evicted, %d bytes of %d", s.EvictedTotal, s.MemoryBytes, s.MaxMemory)
	}
	looked := store.meterReads()
	if looked > keys/10 {
		t.Errorf("%d of %d new keys were looked for", looked, keys)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		key := fmt.Sprint("k", rnd.IntN(keys))
		if n := count(t, c, key, 3_600_000); n != 1 {
			t.Fatalf("%s is %d, want 1", key, n)
		}
	}
}

func (s *counted) meterReads() (n int) {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	for _, times := range s.reads {
		n += times
	}
	return n
}
