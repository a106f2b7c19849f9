package syncer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// hand hands a partition from one counter to another, in pages of about budget bytes.
func hand(t testing.TB, from, to *syncer.Counter, partition, budget int) {
	t.Helper()
	if err := from.BeginHandoff(context.Background(), partition); err != nil {
		t.Fatal(err)
	}
	to.ImportHandoff(pages(t, from, partition, budget))
	if err := from.FinishHandoff(partition); err != nil {
		t.Fatal(err)
	}
}

// pages collects all pages of a partition's handoff.
func pages(t testing.TB, from *syncer.Counter, partition, budget int) *syncer.Handoff {
	t.Helper()
	var all *syncer.Handoff
	for cursor := uint64(0); ; {
		h, next, err := from.HandoffPage(partition, cursor, budget)
		if err != nil {
			t.Fatal(err)
		}
		if all == nil {
			all = h
		} else {
			all.Rounds, all.Keys = append(all.Rounds, h.Rounds...), append(all.Keys, h.Keys...)
		}
		if next == 0 {
			return all
		}
		if next <= cursor {
			t.Fatalf("page %d is followed by %d", cursor, next)
		}
		cursor = next
	}
}

// ownerAndOther returns the owner of the only partition and another counter over one store. Each
// reaches it through a separate fault store.
func ownerAndOther(t *testing.T) (inner *embedded.Store, list []*syncer.Counter,
	stores []*faultstore.Store) {
	t.Helper()
	inner = embedded.New(embedded.Options{})
	clk := &clock{now: t0}
	for i := range 2 {
		s := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
		stores = append(stores, s)
		list = append(list, open(t, syncer.Options{Store: s, Now: clk.Now, NotOwner: i > 0,
			Placement: twotier.Placement{Partitions: 1}, FlushInterval: 50 * time.Millisecond}))
	}
	return inner, list, stores
}

// expiringStore checks that every count comes with a time to live.
type expiringStore struct {
	syncer.Store
	t *testing.T
}

func (s expiringStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		for i := range r.Keys {
			if k := &r.Keys[i]; len(k.Adds) > 0 && k.TTL <= 0 {
				s.t.Errorf("%s is counted without a time to live", k.Key)
			}
		}
	}
	s.Store.Exchange(ctx, rounds)
}

// TestHandedOverRoundSetsTheTimeToLive hands over a round that adds a new key and got no answer.
// The other counter sends it with the key's time to live.
func TestHandedOverRoundSetsTheTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := embedded.New(embedded.Options{})
		one := twotier.Placement{Partitions: 1}
		var list []*syncer.Counter
		var stores []*faultstore.Store
		for i := range 2 {
			s := faultstore.New(faultstore.Options{Store: expiringStore{inner, t},
				Report: t.Errorf, Adopts: true})
			stores = append(stores, s)
			list = append(list, open(t, syncer.Options{Store: s, Placement: one, NotOwner: i > 0,
				FlushInterval: 50 * time.Millisecond}))
		}
		add(t, list[0], "known", 1, 0)
		flush(t, list[0])
		for _, s := range stores {
			s.SetDown(true)
		}
		add(t, list[0], "new", 1, 0)
		time.Sleep(time.Second) // a round that gets no answer is in flight
		hand(t, list[0], list[1], 0, 1<<20)
		for _, s := range stores {
			s.SetDown(false)
		}
		flush(t, list[1])
		if n := inner.Sum(0, nil, []byte("new")); n != 1 {
			t.Errorf("the store has %d events, want 1", n)
		}
	})
}

// TestReservations reserves, confirms and undoes.
func TestReservations(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	reserve := func(id string, n int64, keys ...string) (*twotier.Op, bool) {
		op := twotier.Op{Kind: twotier.Acquire, CountDenied: true, Reserve: id, TS: t0}
		for _, k := range keys {
			op.Checks = append(op.Checks,
				twotier.Check{Key: []byte(k), N: n, Limits: limits(60_000, 10)})
		}
		var res twotier.Result
		if err := c.Do(context.Background(), &op, &res); err != nil {
			t.Fatal(err)
		}
		return &op, res.Allowed
	}
	one, first := reserve("one", 6, "a", "b")
	_, second := reserve("two", 6, "b", "c")
	three, third := reserve("three", 6, "c")
	if !first || second || !third {
		t.Fatal("one and three fit, two does not")
	}
	if acquire(t, c, "a", 5, 0, limits(60_000, 10)).Allowed {
		t.Error("a reservation does not stand in the way")
	}
	if got := count(t, c, "a", 60_000); got != 0 {
		t.Errorf("a reservation is read as %d", got)
	}
	if !c.Undo(one) || c.Undo(one) {
		t.Error("a reservation can be undone once")
	}
	if err := c.Confirm(context.Background(), one); !errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("confirmed after it was undone: %v", err)
	}
	if !acquire(t, c, "a", 5, 0, limits(60_000, 10)).Allowed {
		t.Error("an undone reservation stands in the way")
	}
	if err := c.Confirm(context.Background(), three); err != nil {
		t.Fatal(err)
	}
	if got := count(t, c, "c", 60_000); got != 6 {
		t.Errorf("a confirmed reservation is read as %d, want 6", got)
	}
	if err := c.Confirm(context.Background(), three); err == nil {
		t.Error("confirmed twice")
	}
}
