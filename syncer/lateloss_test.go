package syncer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// TestWhatIsOutOfDateIsHandedOver hands over a key that has to be read again before it is relied
// on. The store loses it before that happens: only the new owner can restore it.
func TestWhatIsOutOfDateIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := newCompany(t, 2, nil)
		co.add(0, "k", 5)
		co.settle()
		co.add(1, "another", 1) // news: what counter 0 knows may be out of date
		co.flush(1)
		time.Sleep(2 * verifyEvery)
		if co.counters[0].Held(nil, []byte("k")).Warm {
			t.Fatal("there is no news")
		}
		hand(t, co.counters[0], co.counters[1], 0, 1<<20)
		co.store.Flush()
		co.settle()
		co.holds("k", 5)
		co.holds("another", 1)
	})
}

// TestWhoKnowsNothingRestoresNothing: a store that lost everything goes back once more, to before a
// change that was only read. Then a counter that knows nothing learns of the first loss. If it sent
// an empty restoration, that change would take the place of the lost one.
func TestWhoKnowsNothingRestoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := newCompany(t, 2, nil)
		co.add(0, "k", 1)
		co.settle()
		co.counts(1, "never counted")
		co.store.Flush()
		co.settle()
		image := co.store.Image()
		stranger := co.open(co.store, "stranger", true)
		addIn(t, stranger, "j", 2, 0)
		if err := stranger.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := co.counts(0, "j"); got != 2 {
			t.Fatalf("it reads %d", got)
		}
		co.store.Rewind(image)
		// It learns of the loss, mostly before counter 0 verifies, and sometimes of counts that
		// counter 0 has restored by then.
		co.counts(1, "nor this")
		if co.counters[1].Stats().LossesTotal == 0 {
			t.Fatal("it heard of no loss")
		}
		co.settle()
		co.holds("k", 1)
		co.holds("j", 2)
	})
}

// gated is a store that can be cut off, and that loses the answer to the next round that writes.
type gated struct {
	syncer.Store
	down, unheard atomic.Bool
}

func (s *gated) Exchange(ctx context.Context, rounds []*syncer.Round) {
	if s.down.Load() {
		unanswered(rounds)
		return
	}
	s.Store.Exchange(ctx, rounds)
	if rounds[0].Seq != 0 && s.unheard.CompareAndSwap(true, false) {
		s.down.Store(true)
		unanswered(rounds)
	}
}

// asks makes a counter ask the store, for some seconds, for a key that it does not know, with or
// without an answer.
func (co *company) asks(at int) {
	ctx, cancel := context.WithTimeout(co.t.Context(), 50*verifyEvery)
	defer cancel()
	check := twotier.Check{Key: fmt.Append(nil, time.Now()),
		Limits: []twotier.Limit{{Window: 60_000}}}
	var res twotier.Result
	_ = co.counters[at].Do(ctx, &twotier.Op{Kind: twotier.Count, AllowNonOwner: true,
		Checks: []twotier.Check{check}}, &res)
	time.Sleep(50 * verifyEvery)
}

func unanswered(rounds []*syncer.Round) {
	for _, r := range rounds {
		r.Err = context.DeadlineExceeded
	}
}

// TestAnEpochIsDrawnOnce: a counter that knows nothing draws the epoch after a loss, but gets no
// answer. Meanwhile another one restores its counts, and the store goes back to before that. If the
// first sent its empty restoration again, that change would take the place of the lost one.
func TestAnEpochIsDrawnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []*gated
		co := newCompany(t, 2, func(s syncer.Store) syncer.Store {
			gates = append(gates, &gated{Store: s})
			return gates[len(gates)-1]
		})
		co.add(0, "k", 1)
		co.counts(1, "never counted")
		co.settle()
		gates[0].down.Store(true)
		gates[1].unheard.Store(true)
		co.store.Flush()
		co.asks(1)
		if gates[1].unheard.Load() {
			t.Fatal("it has not heard of the loss")
		}
		image := co.store.Image()
		gates[0].down.Store(false)
		co.asks(0)
		if got := co.stored("k"); got != 1 {
			t.Fatalf("restored: %d", got)
		}
		gates[0].down.Store(true)
		co.store.Rewind(image)
		gates[1].down.Store(false)
		co.asks(1)
		gates[0].down.Store(false)
		co.settle()
		co.holds("k", 1)
	})
}

// TestRewindBehindARestoration: a store that lost everything goes back to before one counter's
// restoration, and others make as many changes as were lost, so its version is as high as before.
func TestRewindBehindARestoration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gated{}
		co := newCompany(t, 2, func(s syncer.Store) syncer.Store {
			if gate.Store == nil {
				gate.Store = s
				return gate
			}
			return s
		})
		co.add(0, "k", 10)
		co.counts(1, "never counted")
		co.settle()
		gate.down.Store(true)
		co.store.Flush()
		co.asks(1) // and draws an epoch
		image := co.store.Image()
		gate.down.Store(false)
		co.asks(0)
		if got := co.stored("k"); got != 10 {
			t.Fatalf("restored: %d", got)
		}
		co.store.Rewind(image)
		for i := range 3 {
			stranger := co.open(co.store, fmt.Sprint("stranger", i), true)
			addIn(t, stranger, "j", 1, 0)
			if err := stranger.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		co.settle()
		co.holds("k", 10)
		co.holds("j", 3)
	})
}

// slow answers the next exchange only when the test allows it.
type slow struct {
	syncer.Store
	hold         atomic.Bool
	sent, answer chan struct{}
}

func (s *slow) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
	if s.hold.Swap(false) {
		s.sent <- struct{}{}
		<-s.answer
	}
}

// TestALossThatIsToldLate: a counter takes over a partition from one that has restored the lost
// counts and counted on. Only then does it learn of that loss itself. The counts it received do not
// predate the loss.
func TestALossThatIsToldLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &slow{sent: make(chan struct{}), answer: make(chan struct{})}
		var wrapped int
		co := newCompany(t, 2, func(inner syncer.Store) syncer.Store {
			if wrapped++; wrapped == 1 {
				return inner
			}
			late.Store = inner
			return late
		})
		co.add(1, "own", 3)
		co.add(0, "k", 10)
		co.settle()
		co.store.Flush()
		late.hold.Store(true)
		<-late.sent // a round that found the loss, and was not answered
		co.flush(0)
		time.Sleep(2 * verifyEvery)
		co.add(0, "k", 5)
		co.flush(0)
		hand(t, co.counters[0], co.counters[1], 0, 1<<20)
		late.answer <- struct{}{}
		co.settle()
		co.holds("k", 15)
		co.holds("own", 3)
	})
}

// between calls a function after the first exchange of a round with a key.
type between struct {
	syncer.Store
	key  string
	then func()
}

func (s *between) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
	for _, r := range rounds {
		if s.then != nil && r.Seq != 0 && len(r.Keys) > 0 && string(r.Keys[0].Key) == s.key {
			s.then()
			s.then = nil
		}
	}
}

// TestAReplayInDoubtIsNoChange: an owner cancels a handoff when the other counter has already sent
// everything. Then a third process counts a key while the owner sends the rounds once more. These
// change nothing, so the owner must learn of the one real change.
func TestAReplayInDoubtIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults *faultstore.Store
		hook := &between{key: "k"}
		co := newCompany(t, 2, func(inner syncer.Store) syncer.Store {
			if faults != nil {
				return inner
			}
			faults = faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf,
				Adopts: true})
			hook.Store = faults
			return hook
		})
		co.add(0, "first", 1)
		co.settle()
		faults.SetDown(true)
		for _, key := range []string{"k", "l", "m", "n"} { // two rounds
			co.add(0, key, 1)
		}
		if err := co.counters[0].BeginHandoff(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		co.counters[1].ImportHandoff(pages(t, co.counters[0], 0, 1<<20))
		co.flush(1)
		co.counters[1].StopOwning(0)
		hook.then = func() {
			buckets := co.store.Get(0, nil, []byte("k"))
			for i := range buckets {
				buckets[i].N = 5
			}
			r := &syncer.Round{Writer: "stranger", Seq: 1,
				Keys: []syncer.KeyRound{{Key: []byte("k"), Adds: buckets}}}
			co.store.Exchange(context.Background(), []*syncer.Round{r})
		}
		faults.SetDown(false)
		co.counters[0].StartOwning(0)
		time.Sleep(3 * time.Second)
		co.settle()
		if hook.then != nil {
			t.Fatal("nothing was sent once more")
		}
		co.holds("k", 6)
	})
}
