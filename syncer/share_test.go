package syncer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// trio returns one counter that owns all keys and two that count alongside it, under a driven
// clock.
func trio(t *testing.T, interval time.Duration) []*syncer.Counter {
	store := embedded.New(embedded.Options{})
	var list []*syncer.Counter
	for i := range 3 {
		list = append(list, open(t, syncer.Options{
			Store: store, Now: func() int64 { return time.Now().UnixMilli() },
			Placement:     twotier.Placement{Partitions: 1},
			FlushInterval: interval, NotOwner: i > 0, Exchanges: 1,
		}))
	}
	return list
}

// beside acquires one, on the counter that owns the key or on another one.
func beside(t *testing.T, c *syncer.Counter, foreign bool, limit int64) twotier.Result {
	t.Helper()
	op := twotier.Op{Kind: twotier.Acquire, AllowNonOwner: foreign, Checks: []twotier.Check{
		{Key: []byte("hot"), N: 1, Limits: []twotier.Limit{{Window: 60_000, Max: limit}}},
	}}
	var res twotier.Result
	if err := c.Do(context.Background(), &op, &res); err != nil {
		t.Fatal(err)
	}
	return res
}

// share lets counters count a key at the same time.
func share(t *testing.T, list []*syncer.Counter, on bool) {
	t.Helper()
	for _, c := range list {
		if err := c.Share(nil, []byte("hot"), on); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSharedKeyIsSeenWithinStaleAfter: one counter admits, and another, which only refuses or
// reads, sees it.
func TestSharedKeyIsSeenWithinStaleAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 100 * time.Millisecond
		list := trio(t, interval)
		share(t, list, true)
		if got, want := list[0].MaxStaleness(), 3*interval; got != want {
			t.Fatalf("news may be %v old, want %v", got, want)
		}
		for range 20 {
			if !beside(t, list[1], true, 20).Allowed {
				t.Fatal("refused below the limit")
			}
		}
		time.Sleep(list[0].MaxStaleness())
		for i, c := range list {
			res := beside(t, c, i > 0, 20)
			if res.Allowed {
				t.Errorf("counter %d admits a twenty-first", i)
			}
			if most := list[0].MaxStaleness().Milliseconds(); res.AgeMS > most {
				t.Errorf("counter %d decides on news that are %d ms old, at most %d were declared",
					i, res.AgeMS, most)
			}
		}
	})
}

// TestFirstLoadIsOutOfDateOnceOthersCount: a counter's first exchange about a partition is a load,
// and then another counter counts.
func TestFirstLoadIsOutOfDateOnceOthersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := trio(t, 100*time.Millisecond)
		owner, other := list[0], list[1]
		add := func() {
			do(t, other, twotier.Op{Kind: twotier.Add, AllowNonOwner: true,
				Checks: []twotier.Check{{Key: []byte("k"), N: 1}}})
			flush(t, other)
		}
		add()
		if got := count(t, owner, "k", 60_000); got != 1 {
			t.Fatalf("%d, want 1", got)
		}
		add()
		// Longer than the interval at which an owner verifies.
		time.Sleep(10 * time.Second)
		wantCount(t, owner, "k", 60_000, 2)
	})
}

// TestResetWithTwoDeciders resets a key at one of two counters that both decide about it, and drops
// it at the other. No earlier count comes back, whether the other had not flushed it or the store
// later loses everything.
func TestResetWithTwoDeciders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := newCompany(t, 2, nil)
		co.counters[1].StartOwning(0)
		co.add(0, "k", 5)
		co.add(1, "k", 7)
		co.settle()
		co.add(1, "k", 100) // in memory alone
		if err := co.counters[1].DropKey(t.Context(), nil, []byte("k"), true); err != nil {
			t.Fatal(err)
		}
		if err := co.counters[0].ResetKey(t.Context(), nil, []byte("k")); err != nil {
			t.Fatal(err)
		}
		co.settle()
		co.holds("k", 0)
		co.add(1, "k", 2)
		co.settle()
		co.holds("k", 2)
		co.store.Flush()
		co.settle()
		co.holds("k", 2)
	})
}

// TestDropOfWhatIsBeingHandedOff drops a key with counts that are about to be handed off: Drop does
// not succeed before they are in the store.
func TestDropOfWhatIsBeingHandedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gated{}
		co := newCompany(t, 1, func(s syncer.Store) syncer.Store { gate.Store = s; return gate })
		c := co.counters[0]
		co.add(0, "k", 5)
		co.settle()
		gate.down.Store(true)
		co.add(0, "k", 100)
		time.Sleep(time.Second)
		if err := c.BeginHandoff(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.DropKey(ctx, nil, []byte("k"), true)
		if !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("%v, want an unknown outcome", err)
		}
		dropped := make(chan error)
		go func() { dropped <- c.DropKey(t.Context(), nil, []byte("k"), true) }()
		synctest.Wait()
		gate.down.Store(false)
		c.StartOwning(0) // after all
		if err := <-dropped; err != nil {
			t.Error(err)
		}
		if err := c.ResetKey(t.Context(), nil, []byte("k")); err != nil {
			t.Error(err)
		}
		co.settle()
		co.holds("k", 0)
		gate.down.Store(true)
		co.add(0, "k", 7)
		time.Sleep(time.Second)
		if err := c.BeginHandoff(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		go func() { dropped <- c.DropKey(t.Context(), nil, []byte("k"), true) }()
		synctest.Wait()
		if err := c.FinishHandoff(0); err != nil {
			t.Error(err)
		}
		if err := <-dropped; !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("another counter has it now: %v, want an unknown outcome", err)
		}
	})
}

// TestAResetDoesNotReachTheOtherSide resets a key at one of two counters that both decide about it,
// but can't reach the other: that one brings back its unflushed counts, and nothing else.
func TestAResetDoesNotReachTheOtherSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []*gated
		co := newCompany(t, 2, func(s syncer.Store) syncer.Store {
			gates = append(gates, &gated{Store: s})
			return gates[len(gates)-1]
		})
		gate := gates[1]
		co.counters[1].StartOwning(0)
		co.add(0, "k", 5)
		co.add(1, "k", 7)
		co.settle()
		gate.down.Store(true)
		co.add(1, "k", 100)
		if err := co.counters[0].ResetKey(t.Context(), nil, []byte("k")); err != nil {
			t.Fatal(err)
		}
		gate.down.Store(false)
		time.Sleep(5 * time.Second)
		co.settle()
		co.holds("k", 100)
	})
}
