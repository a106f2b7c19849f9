package syncer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

// leased returns an Acquire of n events of a key, together with leases of it that end at a moment.
func leased(key string, n, leases, until, most int64) twotier.Op {
	return twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
		{Key: []byte(key), N: n, Limits: limits(3_600_000, 1<<40)},
		leaseOf(key, leases, until, most)}}
}

// leaseOf returns the check that takes or returns leases of a key.
func leaseOf(key string, n, until, most int64) twotier.Check {
	ns, name := twotier.LeaseKey(nil, "", []byte(key))
	return twotier.Check{Kind: twotier.LeaseCheck, NS: ns, Key: name, N: n, Until: until,
		Limits: limits(1, most)}
}

// openOf returns how many leases of a key are open.
func openOf(t *testing.T, c *syncer.Counter, key string, now int64) int64 {
	t.Helper()
	op := twotier.Op{Kind: twotier.Acquire, DryRun: true,
		Checks: []twotier.Check{leaseOf(key, 1, now+1, 1<<40)}}
	res := do(t, c, op)
	return res.Checks[0].Limits[0].Count - 1
}

// leaseModel knows when the leases of each key end.
type leaseModel map[string]map[int64]int64

// open returns how many leases of a key are open at a moment, and how long it takes until no more
// than most are.
func (m leaseModel) open(key string, now, most int64) (open, wait int64) {
	for end, n := range m[key] {
		if end > now {
			open += n
		}
	}
	for left := open; left > most; wait++ {
		left -= m[key][now+wait+1]
	}
	return open, wait
}

// TestLeasesAgainstAModel takes, returns and renews leases of a few keys at random, over a store
// that a new counter reads now and then. The open ones never exceed the limit, and each ends in the
// millisecond of its end.
func TestLeasesAgainstAModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	clk, store := &clock{now: t0}, embedded.New(embedded.Options{})
	c := open(t, syncer.Options{Now: clk.Now, Store: store})
	model, refused, returned, missing := leaseModel{}, 0, 0, 0
	events := map[string]int64{}
	for i := range 4000 {
		if i%500 == 499 {
			flush(t, c)
			c = open(t, syncer.Options{Now: clk.Now, Store: store})
		}
		now := clk.Now() + dice.Int64N(40)
		clk.set(now)
		key := fmt.Sprint("k", dice.IntN(3))
		if model[key] == nil {
			model[key] = map[int64]int64{}
		}
		was, _ := model.open(key, now, 1<<40)
		if dice.IntN(3) == 0 {
			until := now - 20 + dice.Int64N(60)
			for end, n := range model[key] {
				if n > 0 && end > now && dice.IntN(2) == 0 {
					until = end
				}
			}
			held := until > now && model[key][until] > 0
			res := do(t, c, twotier.Op{Kind: twotier.Acquire,
				Checks: []twotier.Check{leaseOf(key, -1, until, 0)}})
			if res.Allowed != held {
				t.Fatalf("at %d: return the lease until %d: %+v, want %v", now, until, res, held)
			}
			if held {
				model[key][until]--
				returned++
			} else if missing++; res.RetryAfter != -1 {
				t.Fatalf("retry after %d", res.RetryAfter)
			}
			continue
		}
		n, most := 1+dice.Int64N(2), 3+dice.Int64N(3)
		op := leased(key, 1, n, now+1+dice.Int64N(400), most)
		op.Charge, op.DryRun = dice.IntN(8) == 0, dice.IntN(8) == 0
		res := do(t, c, op)
		_, wait := model.open(key, now, most-n)
		if fits := was+n <= most; res.Allowed != fits || res.RetryAfter != wait {
			t.Fatalf("at %d: %d of %d are open: %+v, want %v after %d", now, was, most, res, fits,
				wait)
		}
		if res.Allowed && !op.DryRun {
			model[key][op.Checks[1].Until] += n
			if res.Checks[1].TS != op.Checks[1].Until {
				t.Fatalf("counted at %d, want %d", res.Checks[1].TS, op.Checks[1].Until)
			}
		} else if !res.Allowed {
			refused++
		}
		if op.Counts(&res) {
			events[key]++
		}
		want, _ := model.open(key, now, 1<<40)
		if got := openOf(t, c, key, now); got != want {
			t.Fatalf("at %d: %d leases of %s are open, want %d", now, got, key, want)
		}
		if got := count(t, c, key, 86_400_000); got != events[key] {
			t.Fatalf("at %d: %d events of %s, want %d", now, got, key, events[key])
		}
	}
	if refused < 200 || returned < 50 || missing < 200 {
		t.Errorf("too few: %d refused, %d returned, %d missing", refused, returned, missing)
	}
}

// TestRenewWhileFull: a lease is returned and taken again until later in one operation, although
// the limit is reached.
func TestRenewWhileFull(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	for i := range int64(2) {
		if res := do(t, c, leased("k", 1, 1, t0+1000+i, 2)); !res.Allowed {
			t.Fatalf("%+v", res)
		}
	}
	renew := func(from, to int64) bool {
		res := do(t, c, twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
			leaseOf("k", -1, from, 0), leaseOf("k", 1, to, 2)}})
		return res.Allowed
	}
	if !renew(t0+1000, t0+5000) || renew(t0+1000, t0+6000) {
		t.Error("renewed never, or twice")
	}
	clk.set(t0 + 2000)
	if got := openOf(t, c, "k", clk.Now()); got != 1 {
		t.Errorf("%d are open, want the renewed one", got)
	}
}

// TestSettleInOneOperation takes events back at the time of an earlier acquire, together with its
// lease, once.
func TestSettleInOneOperation(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	hold := leased("k", 8, 1, t0+60_000, 2)
	hold.Checks[0].Limits = limits(3_600_000, 64) // counted to the millisecond
	if res := do(t, c, hold); !res.Allowed {
		t.Fatalf("%+v", res)
	}
	clk.set(t0 + 5000)
	for _, first := range []bool{true, false} {
		settle := leased("k", -5, -1, t0+60_000, 0)
		settle.TS, settle.Checks[0].Limits = t0, nil
		if res := do(t, c, settle); res.Allowed != first {
			t.Fatalf("%+v", res)
		}
		wantCount(t, c, "k", 86_400_000, 3)
	}
	wantCount(t, c, "k", 5000, 0)
}

// TestManyLeases takes more leases of one key than a counter has cells in order: each ends in its
// own millisecond.
func TestManyLeases(t *testing.T) {
	race.SkipLong(t)
	const many = 3000
	clk, store := &clock{now: t0}, embedded.New(embedded.Options{})
	c := open(t, syncer.Options{Now: clk.Now, Store: store})
	for i := range int64(many) {
		until := t0 + 10_000 + i*7919%many*20_000
		if res := do(t, c, leased("k", 1, 1, until, many)); !res.Allowed {
			t.Fatalf("lease %d: %+v", i, res)
		}
	}
	if res := do(t, c, leased("k", 1, 1, t0+9000, many)); res.Allowed ||
		res.RetryAfter != 10_000 {
		t.Errorf("%+v", res)
	}
	flush(t, c)
	for _, at := range []int64{0, 9999, 10_000, 29_999, 30_000, 20_000_000, 59_990_000,
		60_000_000} {
		clk.set(t0 + at)
		want := min(many, max(0, many-(at-10_000+20_000)/20_000))
		if at < 10_000 {
			want = many
		}
		if got := openOf(t, c, "k", clk.Now()); got != want {
			t.Errorf("after %d ms: %d are open, want %d", at, got, want)
		}
		if c = open(t, syncer.Options{Now: clk.Now, Store: store}); openOf(t, c, "k",
			clk.Now()) != want {
			t.Errorf("after %d ms: %d are open in the store, want %d", at,
				openOf(t, c, "k", clk.Now()), want)
		}
	}
}

// TestLeaseIsPlacedWithItsKey checks the placement with hash tags and without.
func TestLeaseIsPlacedWithItsKey(t *testing.T) {
	p := twotier.Placement{Partitions: 1021, Seed: 7, HashTags: twotier.HashTags{"sms": true}}
	for _, ns := range []string{"", "login", "sms"} {
		for _, key := range []string{"a", "{1}:x", "/b", "{}"} {
			leaseNS, name := twotier.LeaseKey([]byte(ns), "id", []byte(key))
			if got, want := p.Of(leaseNS, name), p.Of([]byte(ns), []byte(key)); got != want {
				t.Errorf("%s %s: partition %d, its key has %d", ns, key, got, want)
			}
		}
	}
}

// TestWrongLeases refuses leases that are too long or have ended, and counts nothing.
func TestWrongLeases(t *testing.T) {
	c := open(t, syncer.Options{Now: (&clock{now: t0}).Now})
	for _, until := range []int64{t0 - 1, t0, t0 + 90_000_001} {
		op := leased("k", 1, 1, until, 5)
		err := c.Do(t.Context(), &op, new(twotier.Result))
		if invalid, ok := errors.AsType[*twotier.InvalidError](err); !ok ||
			invalid.Field != "hold" {
			t.Errorf("until %d: %v", until, err)
		}
	}
	wantCount(t, c, "k", 86_400_000, 0)
}

// TestOnlyTheOwnerLeases: a counter in place of the owner takes no leases and returns none, because
// it may not have all that are open.
func TestOnlyTheOwnerLeases(t *testing.T) {
	c := open(t, syncer.Options{Now: (&clock{now: t0}).Now, NotOwner: true})
	for _, n := range []int64{1, -1} {
		op := leased("k", 1, n, t0+1000, 5)
		op.AllowNonOwner = true
		if err := c.Do(t.Context(), &op, new(twotier.Result)); !errors.Is(err,
			twotier.ErrNotOwner) {
			t.Errorf("%d leases: %v", n, err)
		}
		op.AllowNonOwner, op.Checks[0].InPlace, op.Checks[1].InPlace = false, true, true
		if err := c.Do(t.Context(), &op, new(twotier.Result)); !errors.Is(err,
			twotier.ErrNotOwner) {
			t.Errorf("%d leases in place: %v", n, err)
		}
	}
}

// TestNoSettlementWithoutItsMark: while the store can't be asked, a counter that may lack the mark
// of a hold does not settle it, whether it was settled before or not; a counter that has the mark
// refuses, as ever. A lease is taken meanwhile like any other count.
func TestNoSettlementWithoutItsMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, place := embedded.New(embedded.Options{}), twotier.Placement{Partitions: 1}
		var fault atomic.Int32
		store := faultstore.New(faultstore.Options{Store: inner, Report: t.Errorf,
			Decide: func(*syncer.Round) faultstore.Fault { return faultstore.Fault(fault.Load()) }})
		first := open(t, syncer.Options{Store: store, Placement: place})
		settle := func(c *syncer.Counter) (bool, error) {
			ns, key := twotier.SettledKey(60_000, nil, "id.0", []byte("k"))
			op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
				{Key: []byte("k"), N: 3, Limits: limits(3_600_000, 1<<40)},
				{Kind: twotier.LeaseCheck, NS: ns, Key: key, N: 1,
					Until: time.Now().Add(time.Minute).UnixMilli(), Limits: limits(1, 1)}}}
			var res twotier.Result
			err := c.Do(t.Context(), &op, &res)
			return err == nil && res.Allowed, err
		}
		if ok, err := settle(first); !ok || err != nil {
			t.Fatal(ok, err)
		}
		flush(t, first)
		fault.Store(int32(faultstore.RequestLost))
		second := open(t, syncer.Options{Store: store, Placement: place,
			LoadTimeout: 100 * time.Millisecond})
		for range 10 {
			if ok, err := settle(second); ok || !errors.Is(err, twotier.ErrUnavailable) ||
				errors.Is(err, twotier.ErrUnknownOutcome) {
				t.Fatalf("a mark that was not read: %v, %v", ok, err)
			}
			if ok, err := settle(first); ok || err != nil {
				t.Fatalf("settled twice: %v, %v", ok, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		op := leased("k", 1, 1, time.Now().Add(time.Minute).UnixMilli(), 2)
		var res twotier.Result
		if err := second.Do(t.Context(), &op, &res); err != nil || !res.Allowed || !res.Degraded {
			t.Errorf("a lease without the store: %+v, %v", res, err)
		}
		fault.Store(int32(faultstore.None))
		time.Sleep(5 * time.Second)
		if ok, err := settle(second); ok || err != nil {
			t.Errorf("settled twice: %v, %v", ok, err)
		}
	})
}
