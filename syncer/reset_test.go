package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// TestResetWithoutAnAnswer resets a key, which the store may have lost, in a round that is lost, or
// whose reply is. What is added later stays, and nothing earlier comes back.
func TestResetWithoutAnAnswer(t *testing.T) {
	for _, key := range []string{"k", "/k"} {
		for _, fault := range []faultstore.Fault{faultstore.None, faultstore.RequestLost,
			faultstore.ReplyLost} {
			for _, lost := range []bool{false, true} {
				name := fmt.Sprintf("%s,%v,lost=%t", key, fault, lost)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						testUnansweredReset(t, key, fault, lost)
					})
				})
			}
		}
	}
}

func testUnansweredReset(t *testing.T, key string, fault faultstore.Fault, lost bool) {
	inner, next := embedded.New(embedded.Options{}), faultstore.None
	store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf,
		Decide: func(r *syncer.Round) faultstore.Fault {
			if r.Seq == 0 {
				return faultstore.None
			}
			now := next
			next = faultstore.None
			return now
		}})
	c := open(t, syncer.Options{Store: store, Now: (&clock{now: t0}).Now,
		Placement: twotier.Placement{Partitions: 1}, VerifyInterval: verifyEvery})
	add(t, c, key, 5, 0)
	flush(t, c)
	if next = fault; lost {
		inner.Flush()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := c.ResetKey(ctx, spaceOf(key), []byte(key))
	if fault != faultstore.None && !errors.Is(err, twotier.ErrUnknownOutcome) ||
		fault == faultstore.None && !lost && err != nil {
		t.Errorf("the reset reports %v", err)
	}
	for _, want := range []int64{0, 7} {
		add(t, c, key, want, 0)
		flush(t, c)
		time.Sleep(10 * verifyEvery)
		if got := sumOf(key, inner.Get(0, spaceOf(key), []byte(key))); got != want ||
			count(t, c, key, 60_000) != want {
			t.Errorf("the store has %d, want %d", got, want)
		}
	}
}

// waitingReset returns two counters that both decide, and a key with a count of 5 in the store. The
// second counter can't reach the store, and has an unanswered round of another key, so that a reset
// of the key waits behind it.
func waitingReset(t *testing.T) *resetBed {
	b := newResetBed(t)
	b.counters[1].StartOwning(0)
	add(t, b.counters[0], "k", 5, 0)
	flush(t, b.counters[0])
	add(t, b.counters[1], "other", 1, 0)
	flush(t, b.counters[1])
	b.stores[1].SetDown(true)
	add(t, b.counters[1], "other", 1, 0)
	time.Sleep(time.Second)
	return b
}

// resetAndCount resets the key at the first counter, with success, and counts 7.
func (b *resetBed) resetAndCount() {
	b.t.Helper()
	if err := b.counters[0].ResetKey(b.t.Context(), nil, []byte("k")); err != nil {
		b.t.Fatal(err)
	}
	add(b.t, b.counters[0], "k", 7, 0)
	flush(b.t, b.counters[0])
}

// keeps checks that the store has the counts made since the last reset, and keeps them.
func (b *resetBed) keeps() {
	b.t.Helper()
	b.setDown(false)
	time.Sleep(time.Minute)
	for i := range 2 {
		flush(b.t, b.counters[i])
	}
	if got := b.stored("k"); got != 7 {
		b.t.Errorf("7 were counted since the last reset, and the store has %d", got)
	}
	for i := range 2 {
		op := twotier.Op{Kind: twotier.Count, AllowNonOwner: true, Checks: []twotier.Check{
			{Key: []byte("k"), Limits: []twotier.Limit{{Window: 60_000}}}}}
		if got := do(b.t, b.counters[i], op).Checks[0].Limits[0].Count; got != 7 {
			b.t.Errorf("7 were counted since the last reset, and counter %d says %d", i, got)
		}
	}
}

// TestAResetGivesWayToALaterOne resets a key at a counter that can't reach the store, and again at
// another one. Later counts stay: the first reset does not follow when its counter can reach the
// store again, whether that counter has stopped deciding or, as when the store itself was reset,
// has learned of the later reset afterwards.
func TestAResetGivesWayToALaterOne(t *testing.T) {
	for _, decides := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := waitingReset(t)
			b.reset(1, "k")
			if decides {
				b.resetAndCount()
			} else {
				b.counters[1].StopOwning(0)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := b.counters[1].DropKey(ctx, nil, []byte("k"), true); err != nil {
				t.Error(err)
			}
			if !decides {
				b.resetAndCount()
			}
			b.keeps()
		})
	}
}

// TestADropWaitsForAResetThatSomebodyWaitsFor: the reset succeeds for its caller once it is done,
// and DropKey succeeds after it.
func TestADropWaitsForAResetThatSomebodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitingReset(t)
		dropped, done := make(chan error, 1), make(chan error, 1)
		go func() { done <- b.counters[1].ResetKey(context.Background(), nil, []byte("k")) }()
		synctest.Wait()
		b.counters[1].StopOwning(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.counters[1].DropKey(ctx, nil, []byte("k"), false); !errors.Is(err,
			twotier.ErrUnknownOutcome) {
			t.Errorf("%v, want an unknown outcome", err)
		}
		go func() {
			dropped <- b.counters[1].DropKey(context.Background(), nil, []byte("k"), false)
		}()
		synctest.Wait()
		b.setDown(false)
		for _, told := range []chan error{done, dropped} {
			if err := <-told; err != nil {
				t.Error(err)
			}
			if got := b.stored("k"); got != 0 {
				t.Errorf("the key is said to be reset, and the store has %d", got)
			}
		}
		b.resetAndCount()
		b.keeps()
	})
}

// TestADropWithdrawsAResetThatTheStoreRefuses: the store refuses the key when it is first reset,
// and takes it when it is reset elsewhere.
func TestADropWithdrawsAResetThatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &strict{Store: embedded.New(embedded.Options{}), key: "k"}
		b := &resetBed{t: t, inner: store.Store}
		clk := &clock{now: t0}
		for i := range 2 {
			b.stores[i] = faultstore.New(faultstore.Options{Store: store, Report: t.Errorf})
			b.counters[i] = open(t, syncer.Options{Store: b.stores[i], Now: clk.Now,
				NotOwner: i > 0, Placement: twotier.Placement{Partitions: 1}})
		}
		b.stores[2] = b.stores[1]
		b.counters[1].StartOwning(0)
		b.reset(1, "k")
		time.Sleep(time.Second)
		store.healed.Store(true)
		b.counters[1].StopOwning(0)
		if err := b.counters[1].DropKey(t.Context(), nil, []byte("k"), false); err != nil {
			t.Error(err)
		}
		b.resetAndCount()
		b.keeps()
	})
}
