package hotkeys_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/testing/must"
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
			must.Succeed(t, counter.Tracker.Recall(t.Context(), &check))
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
		must.Succeed(t, owner.Recall(t.Context(), &check))
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
