package syncer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// exhaust counts in ever more buckets, at decreasing times from now on, until there is no memory
// for another. The store must be down.
func exhaust(t *testing.T, c *syncer.Counter, now int64) {
	t.Helper()
	countNew := func(key, ts int64) error {
		op := twotier.Op{TS: ts, Checks: []twotier.Check{{Key: fmt.Append(nil, "new-", key), N: 1}}}
		return c.Do(t.Context(), &op, new(twotier.Result))
	}
	keys := int64(0)
	for countNew(keys, now) == nil {
		keys++
	}
	for i := range int64(2_000_000) {
		err := countNew(i%keys, now-i/keys*1000)
		if errors.Is(err, twotier.ErrOverload) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("there is still memory")
}

// TestConfirmNeedsNoMemory: memory is used up between a reservation and its confirmation. The
// reservation is counted nevertheless, because other nodes may have counted their part by then.
func TestConfirmNeedsNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := faulty(t, faultstore.Mix{})
		store.SetDown(true)
		c := open(t, syncer.Options{Store: store, Now: (&clock{now: t0}).Now,
			Placement: twotier.Placement{Partitions: 1}, MaxMemory: 256 << 10})
		add(t, c, "known", 1, 0)
		op := *acquireOp("known", 5, 10)
		op.TS, op.Reserve = t0, "id"
		op.Checks = append(op.Checks, acquireOp("unknown", 7, 10).Checks...)
		if res := do(t, c, op); !res.Allowed {
			t.Fatalf("%+v", res)
		}
		exhaust(t, c, t0)
		if err := c.Confirm(t.Context(), &op); err != nil {
			t.Errorf("Confirm: %v", err)
		}
		for key, want := range map[string]int64{"known": 6, "unknown": 7} {
			wantCount(t, c, key, 3_600_000, want)
		}
		if err := c.Confirm(t.Context(), &op); !errors.Is(err,
			twotier.ErrUnavailable) {
			t.Errorf("confirmed twice: %v", err)
		}
		store.SetDown(false)
	})
}

// TestConfirmAfterCloseLeavesTheReservation: a confirmation that counts nothing must not be taken
// for a repeated one.
func TestConfirmAfterCloseLeavesTheReservation(t *testing.T) {
	c := open(t, syncer.Options{})
	op := *acquireOp("k", 5, 10)
	op.Reserve = "id"
	if res := do(t, c, op); !res.Allowed {
		t.Fatalf("%+v", res)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Confirm(t.Context(), &op); !errors.Is(err,
			twotier.ErrClosed) {
			t.Errorf("Confirm: %v", err)
		}
	}
	if !c.Undo(&op) {
		t.Error("the reservation is gone")
	}
}

// divided are two counters over one store, each of which takes itself for the owner of every key.
type divided struct {
	t     *testing.T
	clk   *clock
	store *embedded.Store
	sides [2]*syncer.Counter
}

func newDivided(t *testing.T) *divided {
	d := &divided{t: t, clk: &clock{now: t0}, store: embedded.New(embedded.Options{})}
	for i := range d.sides {
		d.sides[i] = d.open()
	}
	return d
}

// open opens a counter that only flushes when it is asked to, and does not compare with the store.
func (d *divided) open() *syncer.Counter {
	return open(d.t, syncer.Options{Store: d.store, Now: d.clk.Now, FlushInterval: time.Hour,
		VerifyInterval: time.Hour, Placement: twotier.Placement{Partitions: 2}})
}

// heldOnce is a hold with one key and one lease.
type heldOnce struct {
	key, name    string
	n, ts, until int64
	maker        int
	unflushed    bool // the store lacks it
	settled      bool
}

// hold counts a hold at one side.
func (d *divided) hold(side int, key, name string, n int64) *heldOnce {
	d.t.Helper()
	h := &heldOnce{key: key, name: name, n: n, ts: d.clk.Now(), until: d.clk.Now() + 600_000,
		maker: side, unflushed: true}
	if res := do(d.t, d.sides[side], leased(key, n, 1, h.until, 1<<40)); !res.Allowed {
		d.t.Fatalf("%+v", res)
	}
	return h
}

// settle settles a hold at one side with a number of events, without the lease if that is missing.
func (d *divided) settle(side int, h *heldOnce, n int64) (settled bool, err error) {
	ns, key := twotier.SettledKey(660_000, nil, h.name+".0", []byte(h.key))
	op := twotier.Op{Kind: twotier.Acquire, TS: h.ts, Checks: []twotier.Check{
		{Key: []byte(h.key), N: n - h.n},
		{Kind: twotier.LeaseCheck, NS: ns, Key: key, N: 1, Until: h.until, Limits: limits(1, 1)},
		leaseOf(h.key, -1, h.until, 1<<40)}}
	var res twotier.Result
	err = d.sides[side].Do(d.t.Context(), &op, &res)
	if err == nil && res.Checks[2].Refused && !res.Checks[1].Refused {
		op.Checks = op.Checks[:2]
		err = d.sides[side].Do(d.t.Context(), &op, &res)
	}
	return err == nil && res.Allowed, err
}

// TestSettlementOfAHoldThatIsNotStored: while the store lacks the events of a hold, another counter
// neither takes them back nor marks the hold as settled. After a minute they are lost.
func TestSettlementOfAHoldThatIsNotStored(t *testing.T) {
	for name, arrives := range map[string]bool{"arrives": true, "is lost": false} {
		t.Run(name, func(t *testing.T) {
			d := newDivided(t)
			h := d.hold(0, "k", "id", 8)
			flush(t, d.sides[1])
			for range 3 {
				d.clk.set(d.clk.Now() + 19_000)
				if ok, err := d.settle(1, h, 3); ok || !errors.Is(err, twotier.ErrUnavailable) {
					t.Fatalf("settled %v, %v", ok, err)
				}
			}
			want := int64(3)
			if arrives {
				flush(t, d.sides[0])
			} else {
				d.clk.set(h.ts + 60_000)
				want = 0
			}
			ok, err := d.settle(1, h, 3)
			if !ok || err != nil {
				t.Errorf("settled %v, %v", ok, err)
			}
			flush(t, d.sides[1])
			if got := count(t, d.open(), "k", 3_600_000); got != want {
				t.Errorf("%d events, want %d", got, want)
			}
		})
	}
}

// TestSettlementsOfADividedClusterModel: two counters make and settle holds of the same keys at
// random. Whatever each knows of the other, an acknowledged settlement has changed the store's
// counts to the final number, and a second one, at any side, changes nothing.
func TestSettlementsOfADividedClusterModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	d := newDivided(t)
	want, list := map[string]int64{}, []*heldOnce(nil)
	settled, repeated, unknown := 0, 0, 0
	for i := range 1200 {
		d.clk.set(d.clk.Now() + dice.Int64N(700))
		side := dice.IntN(2)
		if len(list) == 0 || dice.IntN(3) == 0 {
			h := d.hold(side, fmt.Sprint("k", dice.IntN(4)), fmt.Sprint("id", i), dice.Int64N(20))
			list = append(list, h)
			want[h.key] += h.n
			if dice.IntN(2) > 0 {
				d.flush(side, list)
			}
			continue
		}
		h := list[max(0, len(list)-1-dice.IntN(10))]
		n := dice.Int64N(12)
		ok, err := d.settle(side, h, n)
		switch lacks := h.unflushed && h.maker != side; {
		case err != nil && lacks:
			unknown++
			d.flush(h.maker, list)
		case err != nil || ok == h.settled:
			t.Fatalf("hold %+v at side %d: settled %v, %v", h, side, ok, err)
		case ok:
			settled, h.settled = settled+1, true
			want[h.key] += n - h.n
			d.flush(side, list)
		default:
			repeated++
		}
	}
	for side := range d.sides {
		d.flush(side, list)
	}
	fresh := d.open()
	for key, n := range want {
		wantCount(t, fresh, key, 3_600_000, n)
	}
	if settled < 50 || repeated < 50 || unknown < 3 {
		t.Errorf("%d settled, %d repeated, %d unknown", settled, repeated, unknown)
	}
}

// flush flushes one side.
func (d *divided) flush(side int, list []*heldOnce) {
	flush(d.t, d.sides[side])
	for _, h := range list {
		h.unflushed = h.unflushed && h.maker != side
	}
}

// TestLateAcquireAfterTakingBack takes back the newest event of a key before or after it is
// flushed, and the store may lose the flushed counts. A window further back is as full as before,
// for this counter and for one that starts with the store's counts.
func TestLateAcquireAfterTakingBack(t *testing.T) {
	for name, flushes := range map[string]bool{"at once": false, "after a flush": true} {
		t.Run(name, func(t *testing.T) { testLateAcquireAfterTakingBack(t, flushes, false) })
		t.Run(name+", and a loss", func(t *testing.T) {
			testLateAcquireAfterTakingBack(t, flushes, true)
		})
	}
}

func testLateAcquireAfterTakingBack(t *testing.T, flushes, loses bool) {
	store, one := embedded.New(embedded.Options{}), twotier.Placement{Partitions: 1}
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one})
	l := limits(10_000, 10)
	acquire(t, c, "k", 10, 0, l)
	flush(t, c)
	// The next event pushes out earlier buckets; this is the remainder of the finest level.
	clk.set(t0 + 50_000)
	add(t, c, "k", 1, 0)
	flush(t, c)
	clk.set(t0 + 100_000)
	add(t, c, "k", 1, 0)
	if flushes {
		flush(t, c)
	}
	add(t, c, "k", -1, 0)
	flush(t, c)
	if loses {
		store.Flush()
		add(t, c, "another", 1, 0) // this tells the counter of the loss
		flush(t, c)
	}
	for _, counter := range []*syncer.Counter{c,
		open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one})} {
		if acquire(t, counter, "k", 1, t0, l).Allowed {
			t.Error("an 11th event was admitted at a moment whose window holds 10")
		}
	}
}
