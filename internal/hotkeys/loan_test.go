package hotkeys_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// TestTakingBackWhatIsLent takes back, at the owner, counts that the other node has just made from
// its loan, one by one and in a batch. Exactly these counts disappear. While the other node can't
// be reached, nothing is taken back. Both nodes go on counting.
func TestTakingBackWhatIsLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, other, key := newPair(t)
		for range 2 {
			other.acquire(t, key, 2000, limits)
		}
		counter := hotkeys.RecallingCounter{Counter: owner.counter, Tracker: owner.Tracker}
		check := twotier.Check{Key: []byte(key)}
		total := func() int64 {
			t.Helper()
			owner.recall(t, check.Key)
			return count(t, owner.counter, check.Key)
		}
		take := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: check.Key, N: -3}}}
		begin, want := total(), int64(0)
		for i := range 20 {
			for range 2 {
				if other.counted(t, key) {
					want++
				}
			}
			if i%4 == 1 {
				continue
			}
			// Take all but one of the events.
			some := take
			some.Checks = []twotier.Check{{Key: check.Key, N: 1 - begin - want}}
			ops, res := []twotier.Op{some}, make([]twotier.Result, 1)
			if begin, want = 1, 0; i%2 == 0 {
				counter.DoAll(t.Context(), ops, res)
			} else {
				res[0].Err = counter.Do(t.Context(), &some, &res[0])
			}
			if res[0].Err != nil {
				t.Fatal(res[0].Err)
			}
			if n := total(); n != 1 {
				t.Fatalf("%d are left, want 1", n)
			}
		}
		if !other.counted(t, key) {
			t.Error("nothing is lent any more")
		}
		owner.cut.Store(true)
		res := make([]twotier.Result, 2)
		res[0].Err = counter.Do(t.Context(), &take, &res[0])
		counter.DoAll(t.Context(), []twotier.Op{take}, res[1:])
		for i := range res {
			if !errors.Is(res[i].Err, twotier.ErrUnavailable) ||
				errors.Is(res[i].Err, twotier.ErrUnknownOutcome) {
				t.Errorf("while the other node can't be reached: %v", res[i].Err)
			}
		}
		owner.cut.Store(false)
		if n := total(); n != begin+want+1 {
			t.Errorf("%d, want %d", n, begin+want+1)
		}
	})
}

// counted acquires a key once, and reports whether the node decided on its own.
func (s *side) counted(t *testing.T, key string) bool {
	t.Helper()
	var res twotier.Result
	return s.counter.Do(t.Context(), &twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{{Key: []byte(key), N: 1, Limits: limits}}}, &res) == nil
}

// TestTakingBackAtTheSameTime takes back one event many times concurrently. The calls share
// requests to the other node, and the remaining count is exact.
func TestTakingBackAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, other, key := newPair(t)
		for range 2 {
			other.acquire(t, key, 2000, limits)
		}
		counter := hotkeys.RecallingCounter{Counter: owner.counter, Tracker: owner.Tracker}
		check := twotier.Check{Key: []byte(key)}
		counted := int64(other.acquire(t, key, 10, limits))
		owner.recall(t, check.Key)
		begin := count(t, owner.counter, check.Key)
		owner.asked.Store(0)
		const takers = 100
		var running sync.WaitGroup
		for range takers {
			running.Go(func() {
				var res twotier.Result
				if err := counter.Do(t.Context(), &twotier.Op{Kind: twotier.Add,
					Checks: []twotier.Check{{Key: check.Key, N: -1}}}, &res); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		if asked := owner.asked.Load(); asked > takers/10 || asked == 0 {
			t.Errorf("the other node was asked %d times by %d", asked, takers)
		}
		if n := count(t, owner.counter, check.Key); n != begin-takers || counted == 0 {
			t.Errorf("%d are left of %d, %d counted there", n, begin, counted)
		}
	})
}

// count returns how many events a counter has in the last minute.
func count(t *testing.T, c *syncer.Counter, key []byte) int64 {
	t.Helper()
	var res twotier.Result
	err := c.Do(t.Context(), &twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{
		{Key: key, Limits: []twotier.Limit{{Window: 60_000}}}}}, &res)
	must.Succeed(t, err)
	return res.Checks[0].Limits[0].Count
}

// lender owns all keys. The other node answers requests with ask.
type lender struct {
	hotkeys.RecallingCounter
	store *faultstore.Store
	ask   func(ctx context.Context, request any) error
	stop  context.CancelFunc // ends the background work
}

func (l *lender) Ask(ctx context.Context, _ *ring.Member, request, _ any) error {
	return l.ask(ctx, request)
}

func newLender(t *testing.T) *lender {
	t.Helper()
	l := &lender{store: faultstore.New(faultstore.Options{Store: embedded.New(embedded.Options{}),
		Report: t.Errorf, Adopts: true})}
	l.ask = func(ctx context.Context, _ any) error {
		<-ctx.Done()
		return ctx.Err()
	}
	table, counter := newCounter(t, l.store, "owner")
	for p := range placement.Partitions {
		counter.StartOwning(p)
	}
	l.Counter = counter
	var background context.Context
	background, l.stop = context.WithCancel(t.Context())
	l.Tracker = hotkeys.New(hotkeys.Options{Rate: 1000, Placement: placement,
		Table: func() *ring.Table { return table }, Counter: l.Counter, Peers: l,
		Go:      func(fn func(ctx context.Context)) { go fn(background) },
		Changed: func() {}, Paused: func() bool { return false }})
	t.Cleanup(func() {
		l.stop()
		if err := l.Counter.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// lend lends a key.
func (l *lender) lend(t *testing.T, key string) {
	t.Helper()
	a, err := l.Counter.Lend(t.Context(), &twotier.LoanRequest{Key: []byte(key), Limits: limits,
		Loan: "loan of " + key, Number: 1, Want: 100})
	if err != nil || a.Ceiling != 100 {
		t.Fatal(a, err)
	}
}

func adding(key string, n int64) twotier.Op {
	return twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte(key), N: n}}}
}

// TestTakingBackOfSeveralKeys takes back counts of several lent keys, in one batch. It waits for
// the hanging node once and not for each key. Other operations of the batch count, unless the time
// is up.
func TestTakingBackOfSeveralKeys(t *testing.T) {
	for within, counted := range map[time.Duration]bool{
		2500 * time.Millisecond: true, 500 * time.Millisecond: false,
	} {
		t.Run(within.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLender(t)
				ops := []twotier.Op{adding("unrelated", 1)}
				for i := range 3 {
					key := fmt.Sprint("k", i)
					l.lend(t, key)
					ops = append(ops, adding(key, -1))
				}
				res := make([]twotier.Result, len(ops))
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				l.DoAll(ctx, ops, res)
				if d := time.Since(began); d > 1100*time.Millisecond {
					t.Errorf("the batch took %v", d)
				}
				if (res[0].Err == nil) != counted {
					t.Errorf("what is unrelated: %v", res[0].Err)
				}
				for i := range res[1:] {
					err := res[i+1].Err
					if !errors.Is(err, twotier.ErrUnavailable) ||
						counted && !strings.Contains(err.Error(), "node other") {
						t.Errorf("taking back says %v", err)
					}
				}
			})
		})
	}
}

// TestTakingBackWhileTheStoreIsDown fails at once.
func TestTakingBackWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLender(t)
		l.lend(t, "k")
		l.ask = func(ctx context.Context, request any) error {
			return l.Tracker.ServeRecall(ctx, request.(*hotkeys.RecallRequest))
		}
		l.store.SetDown(true)
		time.Sleep(10 * time.Second)
		ops, res := []twotier.Op{adding("unrelated", 1), adding("k", -1)}, make([]twotier.Result, 2)
		began := time.Now()
		l.DoAll(t.Context(), ops, res)
		if d := time.Since(began); d > 0 || res[0].Err != nil ||
			!errors.Is(res[1].Err, twotier.ErrUnavailable) {
			t.Errorf("after %v: %v, %v", d, res[0].Err, res[1].Err)
		}
		l.store.SetDown(false)
	})
}

// TestKeyThatIsLentMeanwhile lends a key for the first time while the batch that takes back its
// counts waits because of another key. Counts made before the request are still found.
func TestKeyThatIsLentMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLender(t)
		l.lend(t, "k1")
		l.ask = func(context.Context, any) error {
			l.lend(t, "k2")
			return nil
		}
		ops := []twotier.Op{adding("k2", 5), adding("k2", -1), adding("k1", -1)}
		res := make([]twotier.Result, len(ops))
		l.DoAll(t.Context(), ops, res)
		for i := range res {
			if res[i].Err != nil {
				t.Errorf("operation %d: %v", i, res[i].Err)
			}
		}
	})
}

// TestHandedOverWhileItIsRecalled hands the partition over during the recall: callers learn that
// another node owns it.
func TestHandedOverWhileItIsRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLender(t)
		l.lend(t, "k")
		p := placement.Of(nil, []byte("k"))
		l.ask = func(ctx context.Context, _ any) error {
			l.store.SetDown(true)
			op := adding("k", 1)
			return errors.Join(l.Counter.Do(ctx, &op, new(twotier.Result)),
				l.Counter.BeginHandoff(ctx, p))
		}
		op := adding("k", -1)
		err := l.Do(t.Context(), &op, new(twotier.Result))
		if !errors.Is(err, twotier.ErrNotOwner) {
			t.Errorf("it says %v", err)
		}
		l.store.SetDown(false)
		l.Counter.StartOwning(p)
	})
}

// TestRecallEndsWithTheNode gives up taking back, and ends the background work.
func TestRecallEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLender(t)
		l.lend(t, "k")
		ended := false
		l.ask = func(ctx context.Context, _ any) error {
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		op := adding("k", -1)
		if err := l.Do(ctx, &op, new(twotier.Result)); !errors.Is(err, twotier.ErrUnavailable) {
			t.Errorf("it says %v", err)
		}
		l.stop()
		synctest.Wait()
		if !ended {
			t.Error("a recall goes on")
		}
	})
}
