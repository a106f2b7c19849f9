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
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

// keyIn returns a key of a partition.
func keyIn(place twotier.Placement, partition int, prefix string) string {
	if partition >= place.Partitions {
		panic(fmt.Sprint("there is no partition ", partition))
	}
	for i := 0; ; i++ {
		if key := fmt.Sprint(prefix, i); place.Of(spaceOf(key), []byte(key)) == partition {
			return key
		}
	}
}

// within returns a context that ends after a while.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func acquireOp(key string, n, most int64) *twotier.Op {
	return &twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{with(key, n, most)}}
}

func addOp(key string, n int64, ack twotier.Ack) *twotier.Op {
	return &twotier.Op{Kind: twotier.Add, Ack: ack, Checks: []twotier.Check{checkOf(key, n)}}
}

// TestNobodyWaitsForOthersForEver: 256 callers wait for the store all the time. Counts that no
// caller waits for are flushed as if the waiting ones did not exist.
func TestNobodyWaitsForOthersForEver(t *testing.T) {
	race.SkipLong(t)
	for name, op := range map[string]func(i, j int) *twotier.Op{
		"ack=redis": func(i, _ int) *twotier.Op {
			return addOp(fmt.Sprint("hot-", i), 1, twotier.AckStore)
		},
		"cold loads": func(i, j int) *twotier.Op {
			return acquireOp(fmt.Sprint("cold-", i, "-", j), 1, 10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultstore.New(faultstore.Options{Store: embedded.New(embedded.Options{}),
					Report: t.Errorf,
					Delay:  func() time.Duration { return time.Millisecond }})
				// Without its list of keys, every new key is loaded.
				c := open(t, syncer.Options{Store: struct{ syncer.Store }{store},
					Placement: twotier.Placement{Partitions: 64}, Exchanges: 1,
					FlushInterval: 20 * time.Millisecond})
				ctx, stop := context.WithCancel(context.Background())
				var callers sync.WaitGroup
				for i := range 256 {
					callers.Go(func() {
						for j := 0; ctx.Err() == nil; j++ {
							_ = c.Do(ctx, op(i, j), new(twotier.Result))
						}
					})
				}
				oldest := time.Duration(0)
				for i := range 50 {
					add(t, c, fmt.Sprint("other-", i), 1, 0)
					time.Sleep(5 * time.Millisecond)
					oldest = max(oldest, c.Stats().UnflushedAge)
				}
				if oldest == 0 || oldest > 60*time.Millisecond {
					t.Errorf("the oldest count was in memory alone for %v, with an interval of "+
						"20 ms", oldest)
				}
				stop()
				callers.Wait()
			})
		})
	}
}

// TestLateIsNotDown asks for a key at its limit while the store takes longer than the caller can
// wait.
func TestLateIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := embedded.New(embedded.Options{})
		before := open(t, syncer.Options{Store: inner})
		add(t, before, "full", 10, 0)
		flush(t, before)
		store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf,
			Delay: func() time.Duration { return 700 * time.Millisecond }})
		var c *syncer.Counter
		for _, d := range []time.Duration{time.Nanosecond, time.Millisecond,
			500 * time.Millisecond, 0} {
			c = open(t, syncer.Options{Store: store, LoadTimeout: 600 * time.Millisecond})
			ctx := context.Background() // waits for LoadTimeout
			if d > 0 {
				ctx = within(t, d)
			}
			if err := c.Do(ctx, acquireOp("full", 1, 10), new(twotier.Result)); !errors.Is(err,
				twotier.ErrUnavailable) {
				t.Errorf("within %v: %v", d, err)
			}
		}
		var res twotier.Result
		if err := c.Do(within(t, 5*time.Second), acquireOp("full", 1, 10), &res); err != nil ||
			res.Allowed || res.Degraded {
			t.Errorf("%+v, %v", res, err)
		}
		if n := c.Stats().PendingBuckets; n != 0 {
			t.Errorf("%d buckets are pending: refusals counted", n)
		}
	})
}

// faltering is a store whose loads fail with an error while it has one.
type faltering struct {
	*embedded.Store
	err atomic.Pointer[error]
}

func (s *faltering) Exchange(ctx context.Context, rounds []*syncer.Round) {
	err := s.err.Load()
	if err == nil || !rounds[0].Aside {
		s.Store.Exchange(ctx, rounds)
		return
	}
	for _, r := range rounds {
		r.Err = *err
	}
}

// TestALateLoadIsNoFailure: loads of a key at its limit fail, so that the store counts as down.
// Then they are only late: nothing is decided without the store any more, however often.
func TestALateLoadIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faltering{Store: embedded.New(embedded.Options{})}
		place := twotier.Placement{Partitions: 1}
		before := open(t, syncer.Options{Store: store.Store, Placement: place})
		add(t, before, "full", 10, 0)
		flush(t, before)
		// Without its list of keys, every key is loaded.
		c := open(t, syncer.Options{Store: struct{ syncer.Store }{store}, Placement: place})
		lost, late := faultstore.ErrLost, fmt.Errorf("%w: %w", syncer.ErrLate, faultstore.ErrLost)
		store.err.Store(&lost)
		if res := do(t, c, counting("full")); !res.Degraded {
			t.Errorf("the store is down: %+v", res)
		}
		store.err.Store(&late)
		time.Sleep(5 * time.Second)
		for range 3 {
			var res twotier.Result
			err := c.Do(within(t, 2*time.Second), acquireOp("full", 1, 10), &res)
			if !errors.Is(err, twotier.ErrUnavailable) {
				t.Errorf("the store is late: %+v, %v", res, err)
			}
		}
		store.err.Store(nil)
		if res := do(t, c, *acquireOp("full", 1, 10)); res.Allowed || res.Degraded {
			t.Errorf("the store answers: %+v", res)
		}
	})
}

// silentPart is a store that loads nothing of partition 0.
type silentPart struct {
	*embedded.Store
	failed atomic.Int64
}

func (s *silentPart) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		if r.Aside && r.Partition == 0 {
			r.Err = faultstore.ErrLost
			s.failed.Add(1)
			continue
		}
		s.Store.Exchange(ctx, []*syncer.Round{r})
	}
}

// TestUnreadablePartOfAStoreThatAnswers counts the loads of a partition that have to fail in a row
// before it counts as unreadable while the store answers others: it may only have paused twice.
func TestUnreadablePartOfAStoreThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentPart{Store: embedded.New(embedded.Options{})}
		place := twotier.Placement{Partitions: 2}
		// Without its list of keys, every key is loaded.
		c := open(t, syncer.Options{Store: struct{ syncer.Store }{store}, Placement: place})
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				count(t, c, keyIn(place, 1, fmt.Sprint(i, "-")), 1000)
				time.Sleep(5 * time.Millisecond)
			}
		})
		res := do(t, c, counting(keyIn(place, 0, "k")))
		stop()
		others.Wait()
		if got := store.failed.Load(); got != 4 || !res.Degraded {
			t.Errorf("%d loads failed, want 4: %+v", got, res)
		}
	})
}

// TestFullStoreIsRead reads keys at their limit from a store that refuses to write.
func TestFullStoreIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, inner := faulty(t, faultstore.Mix{})
		place := twotier.Placement{Partitions: 4}
		before := open(t, syncer.Options{Store: inner, Placement: place})
		for i := range 20 {
			add(t, before, fmt.Sprint("full-", i), 10, 0)
		}
		flush(t, before)
		c := open(t, syncer.Options{Store: store, Placement: place})
		store.SetFull(true)
		for p := range 4 { // each partition has a count that it can't flush
			add(t, c, keyIn(place, p, "new-"), 1, 0)
		}
		time.Sleep(time.Second)
		for i := range 20 {
			key := fmt.Sprint("full-", i)
			add(t, c, key, 1, 0) // even if it is part of a round that is refused
			time.Sleep(20 * time.Millisecond)
			if res := acquire(t, c, key, 1, 0, limits(3_600_000, 11)); res.Allowed ||
				!res.Degraded {
				t.Errorf("%s: %+v", key, res)
			}
		}
		store.SetFull(false)
	})
}

// TestDownIsAnsweredAtOnce asks for cold keys of a store that is gone, or hangs. Once that is
// known, no operation waits.
func TestDownIsAnsweredAtOnce(t *testing.T) {
	for _, fault := range []faultstore.Fault{faultstore.RequestLost, faultstore.Hang} {
		t.Run(fmt.Sprint("fault ", fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var healed atomic.Bool
				store := faultstore.New(faultstore.Options{Store: embedded.New(embedded.Options{}),
					Report: t.Errorf,
					Decide: func(*syncer.Round) faultstore.Fault {
						if healed.Load() {
							return faultstore.None
						}
						return fault
					}})
				c := open(t, syncer.Options{Store: store,
					Placement: twotier.Placement{Partitions: 64}})
				if res := acquire(t, c, "first", 1, 0, limits(3_600_000, 10)); !res.Degraded ||
					!res.Allowed {
					t.Errorf("%+v", res)
				}
				began := time.Now()
				for i := range 200 {
					if res := acquire(t, c, fmt.Sprint("key-", i), 1,
						0, limits(3_600_000, 10)); !res.Degraded {
						t.Errorf("%+v", res)
					}
				}
				// An exchange takes a microsecond.
				if took := time.Since(began); took > time.Millisecond {
					t.Errorf("200 answers took %v", took)
				}
				healed.Store(true)
				time.Sleep(5 * time.Second)
				if res := acquire(t, c, "last", 1, 0, limits(3_600_000, 10)); res.Degraded {
					t.Errorf("after it came back: %+v", res)
				}
			})
		})
	}
}

// TestTakingBackLoadsFirst takes counts back from a key that is not in memory.
func TestTakingBackLoadsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, inner := faulty(t, faultstore.Mix{})
		before := open(t, syncer.Options{Store: inner})
		add(t, before, "k", 5, 0)
		add(t, before, "batch", 5, 0)
		flush(t, before)
		c := open(t, syncer.Options{Store: store})
		do(t, c, *addOp("k", -3, twotier.AckStore))
		wantCount(t, c, "k", 3_600_000, 2)
		do(t, c, *addOp("k", -9, twotier.AckStore))
		wantCount(t, c, "k", 3_600_000, 0)
		ops := []twotier.Op{*addOp("batch", -2, 0), *addOp("other", 1, 0), *addOp("batch", -2, 0)}
		res := make([]twotier.Result, len(ops))
		c.DoAll(context.Background(), ops, res)
		if got := count(t, c, "batch", 3_600_000); got != 1 ||
			errors.Join(res[0].Err, res[1].Err, res[2].Err) != nil {
			t.Errorf("counts %d, want 1: %+v", got, res)
		}
		store.SetDown(true)
		if err := c.Do(within(t, 5*time.Second), addOp("cold", -1, 0),
			new(twotier.Result)); !errors.Is(err, twotier.ErrUnavailable) {
			t.Errorf("without the store: %v", err)
		}
		store.SetDown(false)
	})
}

// TestDropWaitsForWhatMayStillBeWritten resets a key that another counter has sent without getting
// an answer.
func TestDropWaitsForWhatMayStillBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, inner := faulty(t, faultstore.Mix{})
		place := twotier.Placement{Partitions: 1}
		owner := open(t, syncer.Options{Store: inner, Placement: place})
		other := open(t, syncer.Options{Store: store, Placement: place, NotOwner: true})
		op := addOp("k", 5, 0)
		op.AllowNonOwner = true
		time.Sleep(10 * time.Second) // it has exchanged with the store
		do(t, other, *op)
		flush(t, other)
		store.SetDown(true)
		do(t, other, *op)
		time.Sleep(100 * time.Millisecond)
		if err := other.DropKey(within(t, time.Second), nil, []byte("k"), false); !errors.Is(err,
			twotier.ErrUnknownOutcome) {
			t.Errorf("Drop: %v", err)
		}
		store.SetDown(false)
		if err := other.DropKey(within(t, 10*time.Second), nil, []byte("k"), false); err != nil {
			t.Errorf("Drop: %v", err)
		}
		if err := owner.ResetKey(within(t, 10*time.Second), nil, []byte("k")); err != nil {
			t.Errorf("Forget: %v", err)
		}
		time.Sleep(10 * time.Second)
		if got := inner.Get(0, nil, []byte("k")); len(got) > 0 {
			t.Errorf("the key was reset, and then the store holds %v", got)
		}
	})
}
