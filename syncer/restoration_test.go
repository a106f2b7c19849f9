package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// TestAKeyRefusedDuringARestorationIsToldAgain: a store loses everything, then refuses a key that
// is being restored, as Redis does if the name has a value of another type for a moment.
func TestAKeyRefusedDuringARestorationIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals atomic.Int64
		store := &strict{Store: embedded.New(embedded.Options{}), key: "bad",
			refuses: func(r *syncer.Round) bool { return r.Republish && refusals.Add(-1) >= 0 }}
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Store: store, Now: clk.Now, VerifyInterval: time.Second,
			Placement: twotier.Placement{Partitions: 1}})
		for _, key := range []string{"a", "bad", "c"} {
			add(t, c, key, 7, 0)
		}
		flush(t, c)
		refusals.Store(2)
		store.Flush()
		time.Sleep(10 * time.Second)
		if left := refusals.Load(); left > 0 {
			t.Fatalf("nothing was restored: %d", left)
		}
		for _, key := range []string{"a", "bad", "c"} {
			wantCount(t, c, key, 60_000, 7)
			if got := store.Get(0, nil, []byte(key)); len(got) != 1 {
				t.Errorf("%s is in the store as %+v", key, got)
			}
		}
	})
}

// pausing applies parts of a restoration, reports their keys, and answers when allowed.
type pausing struct {
	*embedded.Store
	restored chan string
	answer   chan struct{}
}

func (s pausing) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
	if r := rounds[0]; r.Republish {
		s.restored <- string(r.Keys[0].Key)
		<-s.answer
	}
}

// TestForgetDuringARestoration resets a key while a loss is being restored, before the key is sent
// or while the answer is on its way. It stays reset, and the others are restored.
func TestForgetDuringARestoration(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for name, which := range map[string]func(told string) string{
		"on its way": func(told string) string { return told },
		"not yet told": func(told string) string {
			return keys[(slices.Index(keys, told)+1)%len(keys)]
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testForgetDuringARestoration(t, keys, which) })
		})
	}
}

func testForgetDuringARestoration(t *testing.T, keys []string, which func(told string) string) {
	store := pausing{embedded.New(embedded.Options{}), make(chan string), make(chan struct{})}
	clk, one := &clock{now: t0}, twotier.Placement{Partitions: 1}
	c := open(t, syncer.Options{Store: store, Now: clk.Now, VerifyInterval: time.Second,
		MaxRoundKeys: 1, Placement: one})
	for _, key := range keys {
		add(t, c, key, 7, 0)
	}
	flush(t, c)
	store.Flush()
	reset := which(<-store.restored)
	forgotten := make(chan error)
	go func() { forgotten <- c.ResetKey(context.Background(), nil, []byte(reset)) }()
	synctest.Wait()
	for range keys[1:] {
		store.answer <- struct{}{}
		<-store.restored // so the previous answer was applied
		wantCount(t, c, reset, 60_000, 0)
	}
	store.answer <- struct{}{}
	if err := <-forgotten; err != nil {
		t.Error(err)
	}
	for _, key := range keys {
		want := int64(7)
		if key == reset {
			want = 0
		}
		if got, stored := count(t, c, key, 60_000), store.Get(0, nil, []byte(key)); got != want ||
			len(stored) > 0 != (want > 0) {
			t.Errorf("%s counts %d, and is in the store as %v", key, got, stored)
		}
	}
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
