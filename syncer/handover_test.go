package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier/internal/embedded"
	"twotier/internal/faultstore"
	"twotier/syncer"
)

// hand hands a partition from one counter to another, in pages of so many bytes.
func hand(t testing.TB, from, to *syncer.Counter, partition, budget int) {
	t.Helper()
	if err := from.Cede(context.Background(), partition); err != nil {
		t.Fatal(err)
	}
	to.Adopt(pages(t, from, partition, budget))
	if err := from.Release(partition); err != nil {
		t.Fatal(err)
	}
}

// pages puts together what is told of a partition.
func pages(t testing.TB, from *syncer.Counter, partition, budget int) *syncer.Handover {
	t.Helper()
	var all *syncer.Handover
	for cursor := uint64(0); ; {
		h, next, err := from.Page(partition, cursor, budget)
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
	one := syncer.Placement{Partitions: 1}
	a := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one, FlushInterval: time.Hour})
	b := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one, FlushInterval: time.Hour, Foreign: true})
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
	var res syncer.Result
	op := syncer.Op{Kind: syncer.Add, Checks: []syncer.Check{{Key: []byte("k1"), N: 1}}}
	if err := a.Do(context.Background(), &op, &res); !errors.Is(err, syncer.ErrElsewhere) {
		t.Errorf("the old owner still counts: %v", err)
	}
	if err := a.Forget(context.Background(), nil, []byte("k1")); !errors.Is(err, syncer.ErrElsewhere) {
		t.Errorf("the old owner still resets: %v", err)
	}
}

// TestHandoverWithTheStoreDown moves counts that the store does not have, more than once, and lets an owner stop.
func TestHandoverWithTheStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, clk := embedded.New(embedded.Options{}), &clock{now: t0}
		one := syncer.Placement{Partitions: 1}
		var list []*syncer.Counter
		var stores []*faultstore.Store
		for i := range 4 {
			s := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
			stores = append(stores, s)
			list = append(list, open(t, syncer.Options{Store: s, Now: clk.Now, Placement: one, Foreign: i > 0, FlushInterval: 50 * time.Millisecond}))
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
			time.Sleep(time.Second) // a round that nobody answers is under way
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

// TestHandoverTakenBack hands over to a counter that has taken everything, and then the old owner goes on.
func TestHandoverTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, clk := embedded.New(embedded.Options{}), &clock{now: t0}
		one := syncer.Placement{Partitions: 1}
		store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf, Adopts: true})
		opt := syncer.Options{Store: store, Now: clk.Now, Placement: one, FlushInterval: 50 * time.Millisecond}
		a := open(t, opt)
		opt.Foreign, opt.Store = true, inner
		b := open(t, opt)
		add(t, a, "k", 1, 0)
		flush(t, a)
		store.SetDown(true)
		add(t, a, "k", 10, 0)
		time.Sleep(time.Second)
		add(t, a, "k", 100, 0)
		if err := a.Cede(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		first, again := pages(t, a, 0, 1<<20), pages(t, a, 0, 1<<20)
		b.Adopt(first)
		b.Adopt(again)
		if got := count(t, b, "k", 60_000); got != 111 {
			t.Fatalf("the new owner says %d, want 111", got)
		}
		flush(t, b) // and now its confirmation is lost, and it with it
		a.Own(0)
		store.SetDown(false)
		add(t, a, "k", 1000, 0)
		if got := count(t, a, "k", 60_000); got != 1111 {
			t.Errorf("the old owner says %d, want 1111", got)
		}
		flush(t, a)
		for _, got := range inner.Get(0, nil, []byte("k")) {
			if got.N != 1111 {
				t.Errorf("the store holds %+v, want 1111", got)
			}
		}
	})
}

// TestForeignCountsMeetInTheStore has two counters count in place of an owner, which sees it, as they see each other.
func TestForeignCountsMeetInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, clk := embedded.New(embedded.Options{}), &clock{now: t0}
		one := syncer.Placement{Partitions: 1}
		opt := syncer.Options{Store: store, Now: clk.Now, Placement: one, FlushInterval: 100 * time.Millisecond, VerifyInterval: 200 * time.Millisecond}
		owner := open(t, opt)
		opt.Foreign = true
		b, c := open(t, opt), open(t, opt)
		add(t, owner, "k", 1, 0)
		time.Sleep(time.Second)
		for round := range int64(5) {
			for _, other := range []*syncer.Counter{b, c} {
				op := syncer.Op{Kind: syncer.Acquire, Foreign: true, Checks: []syncer.Check{{Key: []byte("k"), N: 1, Limits: limits(60_000, 8)}}}
				res := do(t, other, op)
				if want := 2*round + 1; res.Allowed != (want < 8) && round != 3 || res.Source != syncer.SourceFallback {
					t.Errorf("round %d: allowed %v (%s) on %+v", round, res.Allowed, res.Source, res.Checks)
				}
			}
			time.Sleep(time.Second)
		}
		if got := count(t, owner, "k", 60_000); got < 8 || got > 9 {
			t.Errorf("the owner sees %d, want 8, or one more that was admitted within an interval", got)
		}
	})
}

// TestReservations holds, confirms and undoes.
func TestReservations(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	reserve := func(id string, n int64, keys ...string) bool {
		op := syncer.Op{Kind: syncer.Acquire, CountDenied: true}
		for _, k := range keys {
			op.Checks = append(op.Checks, syncer.Check{Key: []byte(k), N: n, Limits: limits(60_000, 10)})
		}
		var res syncer.Result
		if err := c.Reserve(context.Background(), id, &op, &res); err != nil {
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
	if err := c.Confirm(context.Background(), "one", syncer.AckMemory); !errors.Is(err, syncer.ErrUnavailable) {
		t.Errorf("confirmed after it was undone: %v", err)
	}
	if !acquire(t, c, "a", 5, 0, limits(60_000, 10)).Allowed {
		t.Error("an undone reservation stands in the way")
	}
	if err := c.Confirm(context.Background(), "three", syncer.AckStore); err != nil {
		t.Fatal(err)
	}
	if got := count(t, c, "c", 60_000); got != 6 {
		t.Errorf("a confirmed reservation is read as %d, want 6", got)
	}
	if err := c.Confirm(context.Background(), "three", syncer.AckMemory); err == nil {
		t.Error("confirmed twice")
	}
}

// TestHandoverModel has three counters hand two partitions to and fro at random, over a store with random faults, with pages and
// confirmations that get lost. Whoever owns a partition knows every count exactly, and in the end so does the store.
func TestHandoverModel(t *testing.T) {
	seeds := *seedsFlag / 3
	if testing.Short() {
		seeds /= 10
	}
	first := firstSeed()
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	for i := range seeds {
		seed := first + uint64(i)
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runHandovers(t, seed) })
		}) {
			t.Fatalf("repeat with -run 'TestHandoverModel$' -seed=%d", seed)
		}
	}
}

// relay is one run of TestHandoverModel.
type relay struct {
	t      *testing.T
	rnd    *rand.Rand
	clk    *clock
	inner  *embedded.Store
	stores []*faultstore.Store
	list   []*syncer.Counter
	owner  []int            // by partition
	truth  map[string]int64 // counted for certain
	limit  int64
}

func runHandovers(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 9))
	r := &relay{t: t, rnd: rnd, clk: &clock{now: t0}, owner: make([]int, 2), truth: map[string]int64{}, limit: 40}
	r.inner = embedded.New(embedded.Options{Now: func() time.Time { return time.UnixMilli(r.clk.Now()) }})
	mix := faultstore.Mix{ReplyLost: rnd.IntN(200), RequestLost: rnd.IntN(100), Refused: rnd.IntN(100), Late: rnd.IntN(100)}
	for i := range 3 {
		s := faultstore.New(faultstore.Options{Store: r.inner, Decide: faultstore.Random(seed+uint64(i), mix), Report: t.Errorf, Adopts: true})
		r.stores = append(r.stores, s)
		r.list = append(r.list, open(t, syncer.Options{
			Store: s, Now: r.clk.Now, Placement: syncer.Placement{Partitions: 2}, Foreign: i > 0, Lanes: 1,
			Writer: fmt.Sprint("w", i), FlushInterval: time.Duration(10+rnd.IntN(200)) * time.Millisecond, VerifyInterval: time.Second,
			Namespaces: map[string]syncer.Namespace{syncer.DefaultNamespace: {OnCold: syncer.OnColdDeny}},
			MaxLag:     shortLag(rnd),
		}))
	}
	for range 150 {
		r.step()
		if t.Failed() {
			t.FailNow()
		}
	}
	r.end()
}

func (r *relay) step() {
	switch n := r.rnd.IntN(100); {
	case n < 35:
		key := fmt.Sprint("free", r.rnd.IntN(5))
		k := 1 + r.rnd.Int64N(4)
		if r.do(key, syncer.Op{Kind: syncer.Add, Checks: []syncer.Check{{Key: []byte(key), N: k}}}, nil) {
			r.truth[key] += k
		}
	case n < 60:
		key := fmt.Sprint("limited", r.rnd.IntN(3))
		var res syncer.Result
		op := syncer.Op{Kind: syncer.Acquire, Checks: []syncer.Check{{Key: []byte(key), N: 1, Limits: limits(86_400_000, r.limit)}}}
		if r.do(key, op, &res) && res.Allowed {
			if r.truth[key]++; r.truth[key] > r.limit {
				r.t.Errorf("%s: %d admitted, limit %d", key, r.truth[key], r.limit)
			}
		}
	case n < 75:
		time.Sleep(time.Duration(r.rnd.IntN(500)) * time.Millisecond)
	case n < 80:
		r.stores[r.rnd.IntN(3)].SetDown(r.rnd.IntN(2) == 0)
	default:
		r.move(r.rnd.IntN(2), r.rnd.IntN(3))
	}
	for p := range r.owner {
		r.check(p)
	}
}

func (r *relay) partition(key string) int {
	return syncer.Placement{Partitions: 2}.Of(nil, []byte(key))
}

func (r *relay) do(key string, op syncer.Op, res *syncer.Result) bool {
	if res == nil {
		res = new(syncer.Result)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := r.list[r.owner[r.partition(key)]].Do(ctx, &op, res)
	if err != nil && !errors.Is(err, syncer.ErrUnavailable) && !errors.Is(err, syncer.ErrBehind) {
		r.t.Errorf("%s: %v", key, err)
	}
	return err == nil
}

// move hands a partition over, and something may go wrong with it: nothing arrives, all arrives but nobody is told.
func (r *relay) move(p, to int) {
	from := r.owner[p]
	if from == to {
		return
	}
	a, b := r.list[from], r.list[to]
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := a.Cede(ctx, p); err != nil {
		a.Own(p)
		return
	}
	h := pages(r.t, a, p, 1+r.rnd.IntN(2000))
	switch r.rnd.IntN(5) {
	case 0:
		a.Own(p)
		return
	case 1: // the new owner takes it, and is gone before it has done anything with it but flush
		b.Adopt(h)
		time.Sleep(time.Duration(r.rnd.IntN(300)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := b.Cede(ctx, p); err == nil {
			if err := b.Release(p); err != nil {
				r.t.Error(err)
			}
		} else {
			b.Disown(p)
		}
		a.Own(p)
		return
	}
	b.Adopt(h)
	if r.rnd.IntN(3) == 0 {
		b.Adopt(pages(r.t, a, p, 1<<20))
	}
	if err := a.Release(p); err != nil {
		r.t.Error(err)
	}
	r.owner[p] = to
}

// check holds what an owner shows against what was counted, as far as it can know it.
func (r *relay) check(p int) {
	c := r.list[r.owner[p]]
	for key, want := range r.truth {
		if r.partition(key) != p {
			continue
		}
		h := c.Held(nil, []byte(key))
		if !h.Found || !h.Warm {
			continue
		}
		sum := map[int64]int64{}
		for _, m := range []map[[2]int64]int64{h.Synced, h.Pending} {
			for b, n := range m {
				sum[b[0]] += n
			}
		}
		if sum[2] != want {
			r.t.Errorf("%s: the owner (%d of %d) shows %d, want %d (synced %v, pending %v)", key, r.owner[p], p, sum[2], want, h.Synced, h.Pending)
		}
	}
}

func (r *relay) end() {
	for _, s := range r.stores {
		s.SetDown(false)
	}
	for _, c := range r.list {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		if err := c.Flush(ctx); err != nil {
			r.t.Fatal(err)
		}
		cancel()
	}
	for _, s := range r.stores {
		s.Deliver()
	}
	time.Sleep(time.Minute) // what is found out by flushing is flushed in turn, such as a time to live that is missing
	for i, c := range r.list {
		if n := c.Stats().PendingBuckets; n > 0 {
			r.t.Errorf("%d buckets are pending at counter %d after Flush", n, i)
		}
		if owed, granted, waiting := c.Room(); owed != 0 || granted != 0 || waiting != 0 {
			r.t.Errorf("counter %d at rest: %d keys wait for the store, %d operations have room and %d wait for it", i, owed, granted, waiting)
		}
	}
	for key, want := range r.truth {
		for _, b := range r.inner.Get(r.partition(key), nil, []byte(key)) {
			if b.Level == 2 && b.N != want {
				r.t.Errorf("%s: the store holds %d, want %d", key, b.N, want)
			}
		}
	}
}
