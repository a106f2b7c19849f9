package syncer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// TestCatchUpAfterAHandover hands a partition over while the store is down. The new owner answers
// for the counts it received; the old one has nothing left to wait for.
func TestCatchUpAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, list, stores := ownerAndOther(t)
		down := func(is bool) {
			for _, s := range stores {
				s.SetDown(is)
			}
		}
		check := twotier.Check{Key: []byte("k")}
		down(true)
		add(t, list[0], "k", 1, 0)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := list[0].CatchUp(ctx, &check); !errors.Is(err, twotier.ErrUnavailable) ||
			time.Since(began) > 0 {
			t.Errorf("while the store is known to be down, after %v: %v", time.Since(began), err)
		}
		hand(t, list[0], list[1], 0, 1<<20)
		down(false)
		flush(t, list[1])
		for i, c := range list {
			if err := c.CatchUp(t.Context(), &check); err != nil {
				t.Errorf("counter %d: %v", i, err)
			}
		}
	})
}

// refusingOnce is a store that refuses the rounds of the next exchange, once.
type refusingOnce struct {
	*embedded.Store
	refusing atomic.Bool
}

func (s *refusingOnce) Exchange(ctx context.Context, rounds []*syncer.Round) {
	if !s.refusing.CompareAndSwap(true, false) {
		s.Store.Exchange(ctx, rounds)
		return
	}
	for _, r := range rounds {
		r.Err = syncer.ErrRefused
	}
}

// TestCatchUpBehindARefusedRound refuses the round that reads another counter's stored counts of a
// shared key. The round changes nothing, so it is not sent again, but its tickets count as
// acknowledged.
func TestCatchUpBehindARefusedRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refusingOnce{Store: embedded.New(embedded.Options{})}
		opt := syncer.Options{Store: store, Placement: twotier.Placement{Partitions: 1},
			Now: func() int64 { return time.Now().UnixMilli() }, FlushInterval: time.Hour}
		owner := open(t, opt)
		opt.Store, opt.NotOwner, opt.FlushInterval = store.Store, true, 50*time.Millisecond
		other := open(t, opt)
		share(t, []*syncer.Counter{owner, other}, true)
		beside(t, owner, false, 1000)
		check := twotier.Check{Key: []byte("hot")}
		if err := owner.CatchUp(t.Context(), &check); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			beside(t, other, true, 1000)
		}
		if err := other.CatchUp(t.Context(), &check); err != nil {
			t.Fatal(err)
		}
		store.refusing.Store(true)
		caughtUp := make(chan error, 1)
		go func() { caughtUp <- owner.CatchUp(t.Context(), &check) }()
		time.Sleep(time.Second) // after a refusal there is a pause
		add(t, owner, "unrelated", 1, 0)
		flush(t, owner)
		if err := <-caughtUp; err != nil {
			t.Fatal(err)
		}
		if store.refusing.Load() {
			t.Error("no round was refused")
		}
		wantCount(t, owner, "hot", 60_000, 101)
	})
}
