package holds_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
)

// TestMarksOutliveTheirHolds: each check of a hold has a mark of its own, in the partition of its
// key, and the store keeps it until the hold has ended, however long it lasts.
func TestMarksOutliveTheirHolds(t *testing.T) {
	place := twotier.Placement{Partitions: 1021}
	spans := twotier.CompanionNamespaces()
	for _, length := range []int64{1, 60_000, 120_000, 120_001, 3_600_000, 86_400_000} {
		h, err := newSealer("s").Open(newSealer("s").Seal(&holds.Hold{Until: length,
			Checks: []holds.Check{{Key: []byte("k"), N: 1},
				{Key: []byte("k"), N: 1, Leased: true}}}))
		must.Succeed(t, err)
		s := h.Settle(0, []int64{3, 0}, func(*holds.Check) []twotier.Limit { return nil })
		marks := map[string]bool{}
		for i := range s.Ops {
			op := &s.Ops[i]
			mark := &op.Checks[1]
			if op.Checks[0].N != int64(2-3*i) || op.TS != 0 || mark.Until != length+600_000 {
				t.Errorf("%+v", op)
			}
			span := spans[twotier.Companion(mark.NS)].Milliseconds()
			if span < length+660_000 {
				t.Errorf("the mark of %d ms lasts %d", length, span)
			}
			if place.Of(mark.NS, mark.Key) != place.Of(nil, []byte("k")) {
				t.Error("a mark is in another partition")
			}
			marks[string(mark.Key)] = true
		}
		if len(marks) != 2 || len(s.Ops[0].Checks) != 2 || len(s.Ops[1].Checks) != 3 {
			t.Errorf("%d marks, %+v", len(marks), s.Ops)
		}
	}
}

// book counts events and leases of keys, as a counter does.
type book struct {
	events map[string]int64
	leases map[string]int64
}

// do executes an operation: all of it, or nothing.
func (b *book) do(op twotier.Op) (res twotier.Result) {
	res.Allowed = true
	for i := range op.Checks {
		c, r := &op.Checks[i], res.AddCheck()
		if !c.IsLease() {
			continue
		}
		open := b.leases[string(c.NS)+string(c.Key)]
		r.Limits = append(r.Limits, twotier.LimitResult{Count: open})
		r.Refused = c.N < 0 && open < -c.N || c.N > 0 && open+c.N > c.Limits[0].Max
		res.Allowed = res.Allowed && !r.Refused
	}
	for i := range op.Checks {
		switch c := &op.Checks[i]; {
		case !res.Allowed:
		case c.IsLease():
			b.leases[string(c.NS)+string(c.Key)] += c.N
		default:
			b.events[string(c.Key)] += c.N
		}
	}
	return res
}

// end is the way in which a hold has ended.
type end uint8

const (
	open end = iota
	settled
	released
	renewed
)

// attempts makes random attempts to end the hold of one key, and compares their outcomes with the
// way in which it has ended.
type attempts struct {
	*book
	t     *testing.T
	hold  *holds.Hold
	ended end
	reset bool
	count int64 // what the key should have
	lost  bool  // the lease
	freed bool  // the lease, by a settlement
}

func (a *attempts) settle(now, n int64) {
	s := a.hold.Settle(now, []int64{n}, func(*holds.Check) []twotier.Limit { return nil })
	if a.reset {
		s.AfterReset(0, n)
	}
	res := a.do(s.Ops[0])
	if got := s.Outcome(0, &res); got == holds.LeaseGone {
		if !a.lost || a.reset || !a.hold.IsOpen(now) {
			a.t.Errorf("a lease is gone of %+v", *a)
		}
		res = a.do(s.WithoutLease(0))
	}
	if got := s.Outcome(0, &res); got == holds.Released {
		res = a.do(s.AfterRelease(0, n))
	}
	want := [...]holds.Outcome{open: holds.Settled, released: holds.Settled,
		settled: holds.Repeated, renewed: holds.Renewed}[a.ended]
	if got := s.Outcome(0, &res); got != want {
		a.t.Errorf("outcome %d of %d, want %d", got, a.ended, want)
	}
	if want == holds.Settled {
		a.freed = a.ended == open && a.hold.IsOpen(now)
		a.ended, a.count = settled, n
	}
}

func (a *attempts) expire() {
	s := a.hold.Expire()
	if a.reset {
		s.AfterReset(0, 0)
	}
	if res := a.do(s.Ops[0]); res.Allowed != (a.ended == open) {
		a.t.Errorf("released %v after %d", res.Allowed, a.ended)
	}
	if a.ended == open {
		a.ended, a.count = released, 0
	}
}

func (a *attempts) renew() {
	next, ops := a.hold.Renew(a.hold.Until + 5000)
	may := a.ended == open && !(a.hold.Checks[0].Leased && a.lost)
	if res := a.do(ops[0]); res.Allowed != may {
		a.t.Errorf("renewed %v after %d, lost %v", res.Allowed, a.ended, a.lost)
	}
	if may {
		// The id of the new hold differs, so its mark does.
		old := *a
		a.hold = sealed(a.t, next)
		old.ended = renewed
		old.settle(1, 3)
	}
}

// sealed gives a hold its name.
func sealed(t *testing.T, h *holds.Hold) *holds.Hold {
	t.Helper()
	s := newSealer("s")
	named, err := s.Open(s.Seal(h))
	must.Succeed(t, err)
	return named
}

// TestHoldEndsOnce settles, releases and renews a hold again and again in a random order, before
// and after its end, with its key reset or its lease lost in between. It is settled once, with the
// final number, and what it was renewed by takes its place.
func TestHoldEndsOnce(t *testing.T) {
	first := seed.First()
	t.Logf("seed %d", first)
	rnd := rand.New(rand.NewPCG(first, 3))
	for range 3000 {
		n := rnd.Int64N(9)
		c := holds.Check{Key: []byte("k"), N: n, TS: 1, Leased: rnd.IntN(2) == 0}
		a := &attempts{book: &book{map[string]int64{"k": n}, map[string]int64{}}, t: t, count: n,
			hold: sealed(t, &holds.Hold{Until: 1000, Checks: []holds.Check{c}})}
		ns, key := twotier.LeaseKey(nil, "", c.Key)
		lease := string(ns) + string(key)
		if c.Leased {
			a.leases[lease] = 1
		}
		for range 1 + rnd.IntN(6) {
			switch rnd.IntN(6) {
			case 0:
				a.expire()
			case 1:
				a.renew()
			case 2:
				a.leases[lease], a.lost = 0, true
				if rnd.IntN(2) == 0 && a.ended == open {
					a.events["k"], a.count, a.reset = 0, 0, true
				}
			default:
				a.settle(rnd.Int64N(2*a.hold.Until), rnd.Int64N(12))
			}
		}
		if a.events["k"] != a.count {
			t.Fatalf("%d events, want %d: %+v", a.events["k"], a.count, *a)
		}
		if taken := a.leases[lease]; taken != 0 && (a.freed || a.lost || !c.Leased) ||
			taken == 0 && c.Leased && !a.freed && !a.lost {
			t.Fatalf("%d leases: %+v", taken, *a)
		}
	}
}

// TestHoldOfASplitEndsOnce has nodes that don't know each other end a hold, each in its own way,
// and adds up what they have counted. From then on the hold is settled, renewed or released, and a
// settlement changes something once at most.
func TestHoldOfASplitEndsOnce(t *testing.T) {
	nothing := func(*holds.Check) []twotier.Limit { return nil }
	h := sealed(t, &holds.Hold{Until: 1000, Checks: []holds.Check{{Key: []byte("k"), N: 3, TS: 1}}})
	settle := func(b *book, n int64) holds.Outcome {
		s := h.Settle(2000, []int64{n}, nothing)
		res := b.do(s.Ops[0])
		if s.Outcome(0, &res) == holds.Released {
			res = b.do(s.AfterRelease(0, n))
		}
		return s.Outcome(0, &res)
	}
	ways := map[end]func(b *book){
		open:     func(*book) {},
		settled:  func(b *book) { settle(b, 5) },
		released: func(b *book) { b.do(h.Expire().Ops[0]) },
		renewed: func(b *book) {
			_, ops := h.Renew(9000)
			b.do(ops[0])
		},
	}
	for one, endOne := range ways {
		for other, endOther := range ways {
			sum := &book{map[string]int64{"k": 3}, map[string]int64{}}
			for _, end := range []func(*book){endOne, endOther, endOther} {
				side := &book{map[string]int64{}, map[string]int64{}}
				end(side)
				sum.events["k"] += side.events["k"]
				for mark, n := range side.leases {
					sum.leases[mark] += n
				}
			}
			want := holds.Settled
			switch {
			case one == settled || other == settled:
				want = holds.Repeated
			case one == renewed || other == renewed:
				want = holds.Renewed
			}
			for range 2 {
				before := sum.events["k"]
				if got := settle(sum, 7); got != want {
					t.Errorf("%d and %d: outcome %d, want %d", one, other, got, want)
				}
				if after := sum.events["k"]; want != holds.Settled && after != before {
					t.Errorf("%d and %d: %d events, then %d", one, other, before, after)
				}
				if want == holds.Settled {
					want = holds.Repeated
				}
			}
		}
	}
}

// TestTally adds up two nodes: one makes holds, and the other one settles some of them.
func TestTally(t *testing.T) {
	now := int64(1_000_000)
	maker := &holds.Tally{Now: func() int64 { return now }}
	settler := &holds.Tally{Now: func() int64 { return now }}
	for _, until := range []int64{now + 1500, now + 1500, now + 7_200_001} {
		maker.Move("sms", 0, until)
	}
	settler.Move("sms", now+1500, 0)
	check := func(n *holds.Tally, made, settled, expired, open string) {
		t.Helper()
		want := ""
		for name, v := range map[string]string{"made_total": made, "settled_total": settled,
			"expired": expired, "open": open} {
			want += "twotier_holds_" + name + `{ns="sms"} ` + v + "\n"
		}
		got := collect(t, n)
		for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("no %s in\n%s", line, got)
			}
		}
	}
	check(maker, "3", "0", "0", "3")
	check(settler, "0", "1", "0", "-1")
	now += 2000
	check(maker, "3", "0", "2", "1")
	check(settler, "0", "1", "-1", "0")
	now += 7_260_000
	check(maker, "3", "0", "3", "0")
}

// TestTallyForgetsWithoutAReader: the memory of a tally whose metrics nobody reads stays bounded.
func TestTallyForgetsWithoutAReader(t *testing.T) {
	now := int64(0)
	n := &holds.Tally{Now: func() int64 { return now }}
	for range 10 * holds.MaxSlots {
		now += 1000
		n.Move("sms", 0, now+500)
	}
	if slots := n.Slots("sms"); slots > holds.MaxSlots {
		t.Errorf("%d slots", slots)
	}
	now += 1000
	if text := collect(t, n); !strings.Contains(text, "expired{ns=\"sms\"} 81920\n") {
		t.Error(text)
	}
}

// collect returns the metrics of a tally.
func collect(t *testing.T, n *holds.Tally) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(n)
	families, err := r.Gather()
	must.Succeed(t, err)
	var b strings.Builder
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&b, f)
		must.Succeed(t, err)
	}
	return b.String()
}
