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
	wantCount(t, c, "a", 60_000, 0)
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
	wantCount(t, c, "c", 60_000, 6)
	if err := c.Confirm(context.Background(), three); err == nil {
		t.Error("confirmed twice")
	}
}

// resetBed is three counters of a partition over one store. Each of them can lose its connection.
type resetBed struct {
	t        *testing.T
	clk      *clock
	inner    *embedded.Store
	stores   [3]*faultstore.Store
	counters [3]*syncer.Counter
}

func newResetBed(t *testing.T) *resetBed {
	b := &resetBed{t: t, clk: &clock{now: t0}, inner: embedded.New(embedded.Options{})}
	for i := range b.counters {
		b.stores[i] = faultstore.New(faultstore.Options{Store: b.inner, Report: t.Errorf,
			Adopts: true})
		b.counters[i] = open(t, syncer.Options{Store: b.stores[i], Now: b.clk.Now, NotOwner: i > 0,
			MaxRoundKeys: 2, Placement: twotier.Placement{Partitions: 1},
			FlushInterval: 50 * time.Millisecond, VerifyInterval: time.Hour})
	}
	return b
}

// stored returns the store's sum of a key.
func (b *resetBed) stored(key string) int64 {
	return sumOf(key, b.inner.Get(0, spaceOf(key), []byte(key)))
}

func (b *resetBed) setDown(down bool) {
	for _, s := range b.stores {
		s.SetDown(down)
	}
}

// reset resets a key at a counter that can't reach the store.
func (b *resetBed) reset(i int, key string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := b.counters[i].ResetKey(ctx, spaceOf(key), []byte(key)); !errors.Is(err,
		twotier.ErrUnknownOutcome) {
		b.t.Errorf("reset without a store: %v", err)
	}
}

// end waits until everything is flushed, and checks that the counter, the store, and a new counter
// that reads the store have this count.
func (b *resetBed) end(i int, key string, want int64) {
	b.t.Helper()
	b.setDown(false)
	flush(b.t, b.counters[i])
	if told, stored := count(b.t, b.counters[i], key, 60_000), b.stored(key); told != stored ||
		told != want {
		b.t.Errorf("%s: the counter says %d, the store has %d, want %d", key, told, stored, want)
	}
	reader := open(b.t, syncer.Options{Store: b.inner, Now: b.clk.Now,
		Placement: twotier.Placement{Partitions: 1}})
	if read := count(b.t, reader, key, 60_000); read != want {
		b.t.Errorf("%s: a counter that reads the store says %d, want %d", key, read, want)
	}
}

// TestManyResetsBeforeATakeover resets more keys than fit into a round before such a takeover.
func TestManyResetsBeforeATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResetBed(t)
		keys := []string{"k", "l", "m", "n", "o"}
		b.counters[1].StartOwning(0)
		for _, key := range keys {
			add(t, b.counters[0], key, 5, 0)
		}
		flush(t, b.counters[0])
		for _, key := range keys {
			if got := count(t, b.counters[1], key, 60_000); got != 5 {
				t.Fatalf("%s: %d, want 5", key, got)
			}
		}
		b.setDown(true)
		for _, key := range keys {
			b.reset(1, key)
			add(t, b.counters[0], key, 2, 0)
		}
		hand(t, b.counters[0], b.counters[1], 0, 1<<20)
		for _, key := range keys {
			b.end(1, key, 2)
		}
	})
}

// TestRenewedHandoff: a handoff is interrupted while the store is down. Once it is renewed, no
// counter decides, not even in place of the owner, and a second attempt hands over everything.
func TestRenewedHandoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := embedded.New(embedded.Options{})
		store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
		opt := syncer.Options{Store: store, Now: (&clock{now: t0}).Now,
			Placement: twotier.Placement{Partitions: 1}}
		a := open(t, opt)
		opt.NotOwner, opt.Store = true, inner
		b := open(t, opt)
		add(t, a, "k", 1, 0)
		flush(t, a)
		store.SetDown(true)
		add(t, a, "k", 10, 0)
		if err := a.BeginHandoff(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		_, cursor, err := a.HandoffPage(0, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.StopOwning(0)
		a.RestartHandoff(0)
		for _, nonOwner := range []bool{false, true} {
			op := acquireOp("k", 1, 100)
			op.AllowNonOwner = nonOwner
			if err := a.Do(t.Context(), op, new(twotier.Result)); !errors.Is(err,
				twotier.ErrNotOwner) {
				t.Errorf("in place of the owner %v: %v", nonOwner, err)
			}
		}
		if err := a.BeginHandoff(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if cursor != 0 {
			if _, _, err := a.HandoffPage(0, cursor, 1); err == nil {
				t.Error("a cursor of the first attempt has a page in the second")
			}
		}
		b.ImportHandoff(pages(t, a, 0, 1<<20))
		if err := a.FinishHandoff(0); err != nil {
			t.Error(err)
		}
		if err := a.ResetKey(t.Context(), nil, []byte("k")); !errors.Is(err, twotier.ErrNotOwner) {
			t.Errorf("the old owner resets a key: %v", err)
		}
		wantCount(t, b, "k", 60_000, 11)
		flush(t, b)
		store.SetDown(false)
		time.Sleep(10 * time.Second)
		flush(t, a)
		sum := int64(0)
		for _, got := range inner.Get(0, nil, []byte("k")) {
			sum += got.N
		}
		if sum != 11 {
			t.Errorf("the store holds %d, want 11", sum)
		}
	})
}

// TestInPlaceOfOneOwner acquires two keys, of which another counter owns one or both. The acquire
// runs if the operation marks each such key as in place.
func TestInPlaceOfOneOwner(t *testing.T) {
	const partitions = 8
	placement := twotier.Placement{Partitions: partitions}
	c := open(t, syncer.Options{Placement: placement})
	keys := make([]string, 2)
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := fmt.Sprint(i)
		if p := placement.Of(nil, []byte(key)); p < 2 {
			keys[p] = key
		}
	}
	for own := range 4 { // as bits
		for p := range 2 {
			if c.StopOwning(p); own>>p&1 == 1 {
				c.StartOwning(p)
			}
		}
		for inPlace := range 4 {
			for _, reserve := range []string{"", "id"} {
				op := acquireOp(keys[0], 1, 100)
				op.Reserve = reserve
				op.Checks = append(op.Checks, acquireOp(keys[1], 1, 100).Checks...)
				for p := range op.Checks {
					op.Checks[p].InPlace = inPlace>>p&1 == 1
				}
				var res twotier.Result
				err := c.Do(t.Context(), op, &res)
				if ok := own|inPlace == 3; ok != (err == nil) ||
					!ok && !errors.Is(err, twotier.ErrNotOwner) {
					t.Errorf("owns %b, in place %b: %v", own, inPlace, err)
				}
				if err == nil && (res.Source == twotier.SourceFallback) != (own < 3) {
					t.Errorf("owns %b, in place %b: source %s", own, inPlace, res.Source)
				}
				c.Undo(op)
			}
		}
	}
}
