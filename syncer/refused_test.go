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
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// strict is slow, and refuses one key whenever it is written.
type strict struct {
	*embedded.Store
	key    string
	delay  func(rounds []*syncer.Round)
	healed atomic.Bool
}

func (s *strict) refuses(r *syncer.Round, k *syncer.KeyRound) bool {
	return r.Seq != 0 && string(k.Key) == s.key
}

func (s *strict) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.delay(rounds)
	if s.healed.Load() {
		s.Store.Exchange(ctx, rounds)
		return
	}
	for _, r := range rounds {
		all := r.Keys
		var taken []syncer.KeyRound
		for i := range all {
			if !s.refuses(r, &all[i]) {
				taken = append(taken, all[i])
			}
		}
		r.Keys = taken
		s.Store.Exchange(ctx, []*syncer.Round{r})
		for i := range all {
			if s.refuses(r, &all[i]) {
				all[i].Err = fmt.Errorf("%w: another type", syncer.ErrNotApplied)
			} else {
				all[i], r.Keys = r.Keys[0], r.Keys[1:]
			}
		}
		r.Keys = all
	}
}

// TestARefusedKeyIsNeverAcknowledged: all kinds of callers wait for the store, again and again,
// with a key that it refuses: before the key is parked, while it is parked, and while it is tried
// again.
func TestARefusedKeyIsNeverAcknowledged(t *testing.T) {
	for _, key := range []string{"bad", "/bad"} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRefusedKeyIsNotAcknowledged(t, key) })
		})
	}
}

func testRefusedKeyIsNotAcknowledged(t *testing.T, key string) {
	store := &strict{Store: embedded.New(embedded.Options{}), key: key,
		delay: func([]*syncer.Round) { time.Sleep(300 * time.Millisecond) }}
	c := open(t, syncer.Options{Store: store, Placement: twotier.Placement{Partitions: 1}})
	until := time.Now().Add(30 * time.Second) // the store is asked to take it five times or so
	var callers sync.WaitGroup
	repeat := func(name string, pause time.Duration, fn func() error) {
		callers.Go(func() {
			for time.Now().Before(until) {
				if err := fn(); err == nil {
					t.Errorf("%s: acknowledged", name)
					return
				}
				time.Sleep(pause)
			}
		})
	}
	bad, ctx := *addOp(key, 1, twotier.AckStore), context.Background()
	held := *acquireOp(key, 1, 1_000_000)
	held.Ack = twotier.AckStore
	together := func(ops ...twotier.Op) func() error {
		return func() error {
			res := make([]twotier.Result, len(ops))
			c.DoAll(ctx, ops, res)
			return res[0].Err
		}
	}
	repeat("add", 70*time.Millisecond, func() error {
		return c.Do(ctx, &bad, new(twotier.Result))
	})
	repeat("acquire", 110*time.Millisecond, func() error {
		return c.Do(ctx, &held, new(twotier.Result))
	})
	repeat("batch of adds", 130*time.Millisecond,
		together(bad, *addOp("good", 1, twotier.AckStore)))
	repeat("batch", 170*time.Millisecond, together(held, *acquireOp("good", 1, 1_000_000)))
	for time.Now().Before(until) {
		do(t, c, *addOp("good", 1, twotier.AckStore)) // others are not delayed
	}
	callers.Wait()
	if got := store.Get(0, spaceOf(key), []byte(key)); len(got) > 0 {
		t.Errorf("it was to be refused, and is in the store as %v", got)
	}
	store.healed.Store(true)
	time.Sleep(20 * time.Second)
	if inMemory, all := count(t, c, key, 60_000),
		store.Get(0, spaceOf(key), []byte(key)); inMemory == 0 || len(all) == 0 {
		t.Errorf("then it is taken: %d in memory, %v in the store", inMemory, all)
	}
}

// TestARefusedKeyIsNotAcknowledgedWhileItIsTriedAgain: a caller learns that all its counts were
// sent at the very moment when the key is tried again.
func TestARefusedKeyIsNotAcknowledgedWhileItIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := twotier.Placement{Partitions: 2}
		bad, good := keyIn(place, 0, "bad-"), keyIn(place, 1, "good-")
		again, tries := make(chan struct{}), 0
		store := &strict{Store: embedded.New(embedded.Options{}), key: bad,
			delay: func(rounds []*syncer.Round) {
				switch r := rounds[0]; {
				case r.Seq == 0:
				case r.Partition == 1:
					<-again
				default:
					if tries++; tries == 2 {
						close(again)
						time.Sleep(time.Second)
					}
				}
			}}
		c := open(t, syncer.Options{Store: store, Placement: place, Exchanges: 2,
			RoundTimeout: time.Minute})
		ops, res := []twotier.Op{*addOp(bad, 1, twotier.AckStore), *addOp(good, 1,
			twotier.AckStore)},
			make([]twotier.Result, 2)
		c.DoAll(context.Background(), ops, res)
		if res[0].Err == nil || res[1].Err != nil {
			t.Errorf("of the key that is refused: %v, of the other: %v", res[0].Err, res[1].Err)
		}
		if tries != 2 {
			t.Errorf("the store was asked %d times", tries)
		}
		store.healed.Store(true)
		time.Sleep(20 * time.Second)
	})
}

// TestARefusedKeyIsTriedAgainAfterAnOutage: the counts of a refused key become too old to matter,
// and the store does not answer when the key is tried again. Later counts of the key reach the
// store.
func TestARefusedKeyIsTriedAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &strict{Store: embedded.New(embedded.Options{}), key: "bad",
			delay: func([]*syncer.Round) {}}
		faults := faultstore.New(faultstore.Options{Store: store, Report: t.Errorf})
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Store: faults, Now: clk.Now,
			Placement: twotier.Placement{Partitions: 1}})
		store.healed.Store(true)
		add(t, c, "bad", 1, 0) // so the next count sets no time to live
		flush(t, c)
		store.healed.Store(false)
		add(t, c, "bad", 1, 0)
		time.Sleep(time.Second)
		clk.set(t0 + 3*86_400_000)
		time.Sleep(2 * time.Second) // shorter than the pause before the key is tried again
		if s := c.Stats(); s.PendingBuckets > 0 || s.BadKeysTotal == 0 {
			t.Fatalf("%+v", s)
		}
		faults.SetDown(true)
		time.Sleep(10 * time.Second)
		faults.SetDown(false)
		store.healed.Store(true)
		add(t, c, "bad", 2, 0)
		time.Sleep(20 * time.Second)
		if n := c.Stats().PendingBuckets; n > 0 {
			t.Errorf("%d buckets are in memory alone; the store has %v", n,
				store.Get(0, nil, []byte("bad")))
		}
	})
}

// TestARefusedKeyGivesNoPrecedence: a partition with a key that was refused long ago flushes many
// other keys, next to another that has as many. They take turns.
func TestARefusedKeyGivesNoPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := twotier.Placement{Partitions: 2}
		var mu sync.Mutex
		var rounds [2]int
		most := 0
		store := &strict{Store: embedded.New(embedded.Options{}), key: keyIn(place, 0, "bad-"),
			delay: func(all []*syncer.Round) {
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				for _, r := range all {
					if len(r.Keys) > 1 {
						rounds[r.Partition]++
					}
				}
				most = max(most, rounds[0]-rounds[1])
			}}
		c := open(t, syncer.Options{Store: store, Placement: place, Exchanges: 1, MaxRoundKeys: 16,
			MaxLag: 100 * time.Second})
		add(t, c, store.key, 1, 0)
		time.Sleep(time.Minute)
		for i := range 200 {
			for partition := range 2 {
				add(t, c, keyIn(place, partition, fmt.Sprint(i, "-")), 1, 0)
			}
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		if s := c.Stats(); s.BadKeysTotal == 0 || s.PendingBuckets != 1 || rounds[1] < 10 {
			t.Errorf("%v rounds, %+v", rounds, s)
		}
		if most > 2 {
			t.Errorf("one was %d rounds ahead", most)
		}
		mu.Unlock()
		store.healed.Store(true)
		time.Sleep(20 * time.Second)
	})
}

// TestWhatIsInUseIsEvictedLast: new keys push out others, while one key is only refused and another
// is only read.
func TestWhatIsInUseIsEvictedLast(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, MaxMemory: 128 << 10,
		Placement: twotier.Placement{Partitions: 1}})
	add(t, c, "refused", 10, 0)
	add(t, c, "read", 10, 0)
	for i := range 3000 {
		clk.set(clk.Now() + 3000)
		for _, key := range []string{"refused", "read"} {
			if !c.Held(nil, []byte(key)).Found {
				t.Fatalf("%s is gone after %d evictions", key, c.Stats().EvictedTotal)
			}
		}
		if acquire(t, c, "refused", 1, 0, limits(86_400_000, 9)).Allowed ||
			count(t, c, "read", 86_400_000) == 0 {
			t.Fatal("what was counted is forgotten")
		}
		add(t, c, fmt.Sprint("new-", i), 1, 0)
		flush(t, c)
	}
	if n := c.Stats().EvictedTotal; n < 1000 {
		t.Errorf("%d evictions show nothing", n)
	}
}
