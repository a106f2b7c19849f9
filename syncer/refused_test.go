package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// strict is a store that refuses one key: whenever it is written, or as refuses decides. It may
// wait before each exchange.
type strict struct {
	*embedded.Store
	key     string
	refuses func(r *syncer.Round) bool
	delay   func(rounds []*syncer.Round)
	healed  atomic.Bool
}

func (s *strict) Exchange(ctx context.Context, rounds []*syncer.Round) {
	if s.delay != nil {
		s.delay(rounds)
	}
	if s.healed.Load() {
		s.Store.Exchange(ctx, rounds)
		return
	}
	for _, r := range rounds {
		all, refused := r.Keys, make([]bool, len(r.Keys))
		r.Keys = nil
		for i, k := range all {
			refused[i] = string(k.Key) == s.key &&
				(s.refuses == nil && r.Seq != 0 || s.refuses != nil && s.refuses(r))
			if !refused[i] {
				r.Keys = append(r.Keys, k)
			}
		}
		s.Store.Exchange(ctx, []*syncer.Round{r})
		for i := range all {
			if refused[i] {
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

// TestARefusedKeyIsTriedAgainAfterAnOutage: the counts of a refused key become too old to matter,
// and the store does not answer when the key is tried again. Later counts of the key reach the
// store.
func TestARefusedKeyIsTriedAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &strict{Store: embedded.New(embedded.Options{}), key: "bad"}
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

// TestARefusedKeyIsNotAcknowledgedOnceItIsHandedOver: an operation waits for the store with a key
// that it refuses and another that it is slow to take, in different partitions. Meanwhile the
// partition of the refused key is handed over, or its handoff begins and is canceled. Memory no
// longer shows that the key was refused, but it was not stored, and the operation must not report
// that it was.
func TestARefusedKeyIsNotAcknowledgedOnceItIsHandedOver(t *testing.T) {
	for _, batch := range []bool{false, true} {
		for _, canceled := range []bool{false, true} {
			for bad := range 2 { // waited for first, or last
				name := fmt.Sprintf("batch=%v,canceled=%v,partition=%d", batch, canceled, bad)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						testRefusedHandover(t, batch, canceled, bad)
					})
				})
			}
		}
	}
}

func testRefusedHandover(t *testing.T, batch, canceled bool, badAt int) {
	place := twotier.Placement{Partitions: 2}
	bad, good := keyIn(place, badAt, "bad-"), keyIn(place, 1-badAt, "good-")
	release, tries := make(chan struct{}), 0
	store := &strict{Store: embedded.New(embedded.Options{}), key: bad,
		delay: func(rounds []*syncer.Round) {
			switch r := rounds[0]; {
			case r.Seq == 0:
			case r.Partition != badAt:
				<-release
			default:
				if tries++; tries == 2 { // after the handoff was canceled
					close(release)
					time.Sleep(time.Second)
				}
			}
		}}
	c := open(t, syncer.Options{Store: store, Placement: place, Exchanges: 2,
		RoundTimeout: time.Minute})
	done := make(chan error, 1)
	go func() { done <- countBoth(c, bad, good, batch) }()
	time.Sleep(2 * time.Second) // the key is refused and parked by now
	if err := c.BeginHandoff(t.Context(), badAt); err != nil {
		t.Fatal(err)
	}
	if canceled {
		c.StartOwning(badAt)
	} else {
		if err := c.FinishHandoff(badAt); err != nil {
			t.Fatal(err)
		}
		close(release)
	}
	if err := <-done; !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("%v, and the store has %v", err, store.Get(badAt, nil, []byte(bad)))
	}
	store.healed.Store(true)
	time.Sleep(20 * time.Second)
}

// countBoth counts two keys, by operations that wait for the store, and returns the error of the
// operation that counts the first.
func countBoth(c *syncer.Counter, bad, good string, batch bool) error {
	ctx := context.Background()
	if batch {
		ops, res := []twotier.Op{*addOp(bad, 1, twotier.AckStore), *addOp(good, 1,
			twotier.AckStore)},
			make([]twotier.Result, 2)
		c.DoAll(ctx, ops, res)
		return res[0].Err
	}
	op := acquireOp(bad, 1, 100)
	op.Ack, op.Checks = twotier.AckStore, append(op.Checks, acquireOp(good, 1, 100).Checks...)
	return c.Do(ctx, op, new(twotier.Result))
}
