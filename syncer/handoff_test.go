package syncer_test

import (
	"context"
	"errors"
	"fmt"
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

func TestHandoverIsExactFromTheFirstRequest(t *testing.T) {
	store, clk := embedded.New(embedded.Options{}), &clock{now: t0}
	one := twotier.Placement{Partitions: 1}
	a := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one,
		FlushInterval: time.Hour})
	b := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one,
		FlushInterval: time.Hour, NotOwner: true})
	for i := range 300 {
		add(t, a, fmt.Sprint("k", i), int64(i+1), 0)
	}
	flush(t, a)
	for i := range 200 {
		add(t, a, fmt.Sprint("k", i), 1, 0)
	}
	hand(t, a, b, 0, 500)
	loads := b.Stats().LoadsTotal
	for i := range 300 {
		want := int64(i + 1)
		if i < 200 {
			want++
		}
		if got := count(t, b, fmt.Sprint("k", i), 60_000); got != want {
			t.Fatalf("k%d: %d, want %d", i, got, want)
		}
	}
	if n := b.Stats().LoadsTotal - loads; n > 0 {
		t.Errorf("%d keys had to be read from the store", n)
	}
	if s := a.Stats(); s.Keys != 0 || s.PendingBuckets != 0 {
		t.Errorf("%d keys and %d pending buckets are left behind", s.Keys, s.PendingBuckets)
	}
	var res twotier.Result
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte("k1"), N: 1}}}
	if err := a.Do(context.Background(), &op, &res); !errors.Is(err, twotier.ErrNotOwner) {
		t.Errorf("the old owner still counts: %v", err)
	}
	if err := a.ResetKey(context.Background(), nil, []byte("k1")); !errors.Is(err,
		twotier.ErrNotOwner) {
		t.Errorf("the old owner still resets: %v", err)
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

// TestHandoverOfWhatCancelsOut hands over two rounds, of which one counts and one takes back. Once
// the store has the first of them, another count makes their sum zero.
func TestHandoverOfWhatCancelsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, list, stores := ownerAndOther(t)
		add(t, list[0], "k", 1, 0)
		flush(t, list[0])
		for _, s := range stores {
			s.SetDown(true)
		}
		add(t, list[0], "k", 2, 0)
		time.Sleep(time.Second) // this is in a round that gets no answer
		add(t, list[0], "k", -1, 0)
		hand(t, list[0], list[1], 0, 1<<20)
		add(t, list[1], "k", 1, 0)
		stores[1].SetDown(false)
		flush(t, list[1])
		if got := count(t, list[1], "k", 60_000); got != 3 {
			t.Errorf("the new owner counts %d, want 3", got)
		}
		if got := inner.Sum(0, nil, []byte("k")); got != 3 {
			t.Errorf("the store has %d, want 3", got)
		}
	})
}

// TestHandoverWithTheStoreDown moves unflushed counts, more than once, and stops an owner.
func TestHandoverWithTheStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, clk := embedded.New(embedded.Options{}), &clock{now: t0}
		one := twotier.Placement{Partitions: 1}
		var list []*syncer.Counter
		var stores []*faultstore.Store
		for i := range 4 {
			s := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
			stores = append(stores, s)
			list = append(list,
				open(t, syncer.Options{Store: s, Now: clk.Now, Placement: one, NotOwner: i > 0,
					FlushInterval: 50 * time.Millisecond}))
		}
		add(t, list[0], "k", 1, 0)
		flush(t, list[0])
		for _, s := range stores {
			s.SetDown(true)
		}
		for i, c := range list {
			if i > 0 {
				hand(t, list[i-1], c, 0, 1<<20)
			}
			add(t, c, "k", 10, 0)
			time.Sleep(time.Second) // a round that gets no answer is in flight
			if got := count(t, c, "k", 60_000); got != int64(1+10*(i+1)) {
				t.Fatalf("owner %d: %d, want %d", i, got, 1+10*(i+1))
			}
			if i > 0 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				if err := list[i-1].Close(ctx); err != nil {
					t.Errorf("owner %d has nothing left that could be lost: %v", i-1, err)
				}
				cancel()
			}
		}
		for _, s := range stores {
			s.SetDown(false)
		}
		flush(t, list[3])
		for _, b := range inner.Get(0, nil, []byte("k")) {
			if b.N != 41 {
				t.Errorf("the store holds %+v, want 41", b)
			}
		}
	})
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

// TestHandoverTakenBack hands over to a counter that takes everything, and then the old owner
// carries on.
func TestHandoverTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, clk := embedded.New(embedded.Options{}), &clock{now: t0}
		one := twotier.Placement{Partitions: 1}
		store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
		opt := syncer.Options{Store: store, Now: clk.Now, Placement: one,
			FlushInterval: 50 * time.Millisecond}
		a := open(t, opt)
		opt.NotOwner, opt.Store = true, inner
		b := open(t, opt)
		add(t, a, "k", 1, 0)
		flush(t, a)
		store.SetDown(true)
		add(t, a, "k", 10, 0)
		time.Sleep(time.Second)
		add(t, a, "k", 100, 0)
		if err := a.BeginHandoff(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		first, again := pages(t, a, 0, 1<<20), pages(t, a, 0, 1<<20)
		late := pages(t, a, 0, 1<<20)
		b.ImportHandoff(first)
		b.ImportHandoff(again)
		if got := count(t, b, "k", 60_000); got != 111 {
			t.Fatalf("the new owner says %d, want 111", got)
		}
		flush(t, b)
		b.ImportHandoff(late)
		if err := b.CheckStates(); err != nil {
			t.Error("after pages whose rounds the store has: ", err)
		}
		// Now its confirmation is lost, and so is the counter.
		a.StartOwning(0)
		store.SetDown(false)
		add(t, a, "k", 1000, 0)
		if got := count(t, a, "k", 60_000); got != 1111 {
			t.Errorf("the old owner says %d, want 1111", got)
		}
		flush(t, a)
		if got := inner.Sum(0, nil, []byte("k")); got != 1111 {
			t.Errorf("the store holds %d, want 1111", got)
		}
	})
}

// TestForeignCountsMeetInTheStore has two counters count in place of an owner. The owner sees their
// counts, and they see each other's.
func TestForeignCountsMeetInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, clk := embedded.New(embedded.Options{}), &clock{now: t0}
		one := twotier.Placement{Partitions: 1}
		opt := syncer.Options{Store: store, Now: clk.Now, Placement: one,
			FlushInterval: 100 * time.Millisecond, VerifyInterval: 200 * time.Millisecond}
		owner := open(t, opt)
		opt.NotOwner = true
		b, c := open(t, opt), open(t, opt)
		add(t, owner, "k", 1, 0)
		time.Sleep(time.Second)
		for round := range int64(5) {
			for _, other := range []*syncer.Counter{b, c} {
				op := twotier.Op{Kind: twotier.Acquire, AllowNonOwner: true,
					Checks: []twotier.Check{{Key: []byte("k"), N: 1, Limits: limits(60_000, 8)}}}
				res := do(t, other, op)
				if want := 2*round + 1; res.Allowed != (want < 8) && round != 3 ||
					res.Source != twotier.SourceFallback {
					t.Errorf("round %d: allowed %v (%s) on %+v", round, res.Allowed, res.Source,
						res.Checks)
				}
			}
			time.Sleep(time.Second)
		}
		if got := count(t, owner, "k", 60_000); got < 8 || got > 9 {
			t.Errorf("the owner sees %d, want 8, or one more that was admitted within an interval",
				got)
		}
	})
}

// TestReservations reserves, confirms and undoes.
func TestReservations(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	reserve := func(id string, n int64, keys ...string) bool {
		op := twotier.Op{Kind: twotier.Acquire, CountDenied: true, Reserve: id}
		for _, k := range keys {
			op.Checks = append(op.Checks,
				twotier.Check{Key: []byte(k), N: n, Limits: limits(60_000, 10)})
		}
		var res twotier.Result
		if err := c.Do(context.Background(), &op, &res); err != nil {
			t.Fatal(err)
		}
		return res.Allowed
	}
	if !reserve("one", 6, "a", "b") || reserve("two", 6, "b", "c") || !reserve("three", 6, "c") {
		t.Fatal("one and three fit, two does not")
	}
	if acquire(t, c, "a", 5, 0, limits(60_000, 10)).Allowed {
		t.Error("a reservation does not stand in the way")
	}
	if got := count(t, c, "a", 60_000); got != 0 {
		t.Errorf("a reservation is read as %d", got)
	}
	if !c.Undo("one") || c.Undo("one") || c.Undo("nobody's") {
		t.Error("a reservation can be undone once")
	}
	if err := c.Confirm(context.Background(), "one", twotier.AckMemory); !errors.Is(err,
		twotier.ErrUnavailable) {
		t.Errorf("confirmed after it was undone: %v", err)
	}
	if !acquire(t, c, "a", 5, 0, limits(60_000, 10)).Allowed {
		t.Error("an undone reservation stands in the way")
	}
	if err := c.Confirm(context.Background(), "three", twotier.AckStore); err != nil {
		t.Fatal(err)
	}
	if got := count(t, c, "c", 60_000); got != 6 {
		t.Errorf("a confirmed reservation is read as %d, want 6", got)
	}
	if err := c.Confirm(context.Background(), "three", twotier.AckMemory); err == nil {
		t.Error("confirmed twice")
	}
}

// TestTheAgeOfCountsIsHandedOver has counts wait for a store that is down, at one counter and then
// at another, where their age is the same.
func TestTheAgeOfCountsIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []*gated
		co := newCompany(t, 2, func(s syncer.Store) syncer.Store {
			gates = append(gates, &gated{Store: s})
			return gates[len(gates)-1]
		})
		co.add(0, "known", 1)
		co.settle()
		for _, gate := range gates {
			gate.down.Store(true)
		}
		co.add(0, "k", 5)
		time.Sleep(20 * time.Second)
		hand(t, co.counters[0], co.counters[1], 0, 1<<20)
		age := co.counters[1].Stats().UnflushedAge
		if age < 20*time.Second || age > 22*time.Second {
			t.Errorf("counts that have waited for 20 s are %v old at the new owner", age)
		}
		for _, gate := range gates {
			gate.down.Store(false)
		}
		time.Sleep(5 * time.Second)
		co.settle()
		co.holds("k", 5)
		if age := co.counters[1].Stats().UnflushedAge; age != 0 {
			t.Errorf("all is in the store, and %v old", age)
		}
	})
}

// TestWhatIsHandedOverTakesRoom hands over as many keys as there is room for. The new owner admits
// no new key before the store has accepted them, as if it had admitted them itself.
func TestWhatIsHandedOverTakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, old := openHeld(t, time.Second)
		to, s := openHeld(t, time.Second)
		place, keys := twotier.Placement{Partitions: 2}, to.MostRoom()-1
		for i := range keys {
			add(t, from, keyIn(place, 1, fmt.Sprint("k", i, "-")), 1, 0)
		}
		if owed, _, _ := to.Room(); owed != 1 {
			t.Fatalf("%d keys wait for the store of the new owner", owed)
		}
		hand(t, from, to, 1, 1<<20)
		if owed, _, _ := to.Room(); owed != keys+1 {
			t.Errorf("%d keys wait for the store, want %d", owed, keys+1)
		}
		told := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			told <- to.Do(ctx, addOp(keyIn(place, 0, "new"), 1, twotier.AckMemory),
				new(twotier.Result))
		}()
		synctest.Wait()
		if _, _, waiting := to.Room(); waiting != 1 || len(told) != 0 {
			t.Errorf("%d operations wait for room", waiting)
		}
		close(s.answer)
		close(old.answer)
		if err := <-told; err != nil {
			t.Error(err)
		}
		flush(t, to)
		if owed, _, _ := to.Room(); owed != 0 {
			t.Errorf("%d keys wait for the store, which has all", owed)
		}
	})
}
