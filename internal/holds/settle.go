package holds

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/metrics"
)

// Settlement settles a hold: one operation for each of its keys.
type Settlement struct {
	// Ops are the operations; each of them is all or nothing.
	Ops []twotier.Op

	hold  *Hold
	parts []part // parallel to Ops
}

// part is the place of an operation's checks.
type part struct {
	events, mark, lease int // positions; lease is -1 if there is none
}

// LateWithin is how long after its end a hold can be settled or released: its mark lasts until
// then.
const LateWithin = 10 * time.Minute

// A hold that has ended has a mark, whose number of leases stands for the way in which it ended. A
// released one can be settled once, which adds markSettledLate. While nodes don't know each other,
// several may end a hold, and the leases of their marks add up. So each way has bits of its own.
const (
	markSettled = 1 << (5 * iota)
	markRenewed // its settlement is that of another hold
	markReleased
	markSettledLate
)

// IsOpen reports whether the hold lasts at a time in unix milliseconds: its places are taken, and
// it can be renewed.
func (h *Hold) IsOpen(now int64) bool { return now < h.Until }

// IsSettleable reports whether the hold can be settled at a time in unix milliseconds: until some
// time after its end.
func (h *Hold) IsSettleable(now int64) bool { return now < h.markedUntil() }

// markedUntil returns the end of the hold's mark.
func (h *Hold) markedUntil() int64 { return h.Until + LateWithin.Milliseconds() }

// Settle returns the settlement of a hold, at a time, with the final number of events of each
// check. limitsOf returns the limits whose windows the results report. They must not refuse.
func (h *Hold) Settle(now int64, n []int64,
	limitsOf func(*Check) []twotier.Limit) *Settlement {
	s := &Settlement{hold: h}
	for i := range h.Checks {
		c := &h.Checks[i]
		op := twotier.Op{Kind: twotier.Acquire, TS: c.TS, Checks: []twotier.Check{
			{NS: c.NS, Key: c.Key, N: n[i] - c.N, Limits: limitsOf(c)}, h.markOf(i, markSettled)}}
		at := part{0, 1, -1}
		if c.Leased && h.IsOpen(now) {
			at.lease = len(op.Checks)
			op.Checks = append(op.Checks, h.leaseOf(c, -1))
		}
		s.Ops, s.parts = append(s.Ops, op), append(s.parts, at)
	}
	return s
}

// Expire returns the settlement that releases a hold after its end.
func (h *Hold) Expire() *Settlement {
	s := &Settlement{hold: h}
	for i := range h.Checks {
		c := &h.Checks[i]
		s.Ops = append(s.Ops, twotier.Op{Kind: twotier.Acquire, TS: c.TS, Checks: []twotier.Check{
			{NS: c.NS, Key: c.Key, N: -c.N}, h.markOf(i, markReleased)}})
		s.parts = append(s.parts, part{0, 1, -1})
	}
	return s
}

// markOf returns the check that marks check i of the hold as settled, once.
func (h *Hold) markOf(i int, mark int64) twotier.Check {
	c, until := &h.Checks[i], h.markedUntil()
	ns, key := twotier.SettledKey(until-c.TS, c.NS, h.name+"."+strconv.Itoa(i), c.Key)
	return twotier.Check{Kind: twotier.LeaseCheck, NS: ns, Key: key, N: mark, Until: until,
		Limits: []twotier.Limit{{Window: 1, Max: mark}}}
}

// leaseOf returns the check that takes the lease of a key, or returns it if n is -1.
func (h *Hold) leaseOf(c *Check, n int64) twotier.Check {
	ns, key := twotier.LeaseKey(c.NS, "", c.Key)
	return twotier.Check{Kind: twotier.LeaseCheck, NS: ns, Key: key, N: n, Until: h.Until,
		Limits: []twotier.Limit{{Window: 1, Max: twotier.Unlimited}}}
}

// Renew returns the same hold until another end, which has to be sealed anew, and the operations,
// one for each key, that replace the old one by it. They are refused if the old one was settled or
// renewed before.
func (h *Hold) Renew(until int64) (next *Hold, ops []twotier.Op) {
	next = &Hold{Until: until, Release: h.Release, Checks: h.Checks}
	for i := range h.Checks {
		c := &h.Checks[i]
		op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{h.markOf(i, markRenewed)}}
		if c.Leased {
			op.Checks = append(op.Checks, h.leaseOf(c, -1), next.leaseOf(c, 1))
		}
		ops = append(ops, op)
	}
	return next, ops
}

// Outcome is the effect of a settlement on one key.
type Outcome uint8

// The outcomes.
const (
	// Settled means that the key is settled now.
	Settled Outcome = iota
	// Repeated means that it was settled before.
	Repeated
	// Renewed means that its hold was renewed: only the new one can be settled.
	Renewed
	// LeaseGone means that nothing was done because the lease of the key is lost. WithoutLease
	// returns the operation to execute instead.
	LeaseGone
	// Released means that it was released at its end. AfterRelease returns the operation to execute
	// instead.
	Released
	// Unsettled means that nothing was done because the counts of the key are unknown: the store
	// can't be asked, and the key's namespace refuses until it can.
	Unsettled
)

// Outcome returns the effect of operation i, which had this result and no error.
func (s *Settlement) Outcome(i int, res *twotier.Result) Outcome {
	at := s.parts[i]
	refused := func(check int) bool {
		return check >= 0 && check < len(res.Checks) && res.Checks[check].Refused
	}
	switch {
	case res.Allowed:
		return Settled
	case refused(at.mark):
		return outcomeOf(&res.Checks[at.mark])
	case refused(at.lease) && !refused(at.events):
		return LeaseGone
	}
	return Unsettled
}

// outcomeOf returns the effect of a settlement that a mark refuses.
func outcomeOf(mark *twotier.CheckResult) Outcome {
	if len(mark.Limits) == 0 {
		return Repeated
	}
	switch n := mark.Limits[0].Count; {
	case n%markRenewed > 0, n >= markSettledLate:
		return Repeated
	case n%markReleased > 0:
		return Renewed
	}
	return Released
}

// WithoutEvents changes operation i to count no events: they were counted before anything that
// their namespace covers. It returns the operation.
func (s *Settlement) WithoutEvents(i int) twotier.Op {
	op := &s.Ops[i]
	op.TS, op.Checks[s.parts[i].events].N = 0, 0
	return *op
}

// WithoutLease changes operation i to return no lease. It returns the operation.
func (s *Settlement) WithoutLease(i int) twotier.Op {
	op := &s.Ops[i]
	if at := &s.parts[i]; at.lease >= 0 {
		op.Checks, at.lease = op.Checks[:at.lease], -1
	}
	return *op
}

// AfterReset changes operation i to count n events and to take nothing back: a reset of the key has
// forgotten the events of the hold, and ended its lease.
func (s *Settlement) AfterReset(i int, n int64) {
	s.WithoutLease(i)
	s.Ops[i].Checks[s.parts[i].events].N = n
}

// AfterRelease changes operation i to count n events, once, although the hold was released. It
// returns the operation.
func (s *Settlement) AfterRelease(i int, n int64) twotier.Op {
	s.AfterReset(i, n)
	mark := &s.Ops[i].Checks[s.parts[i].mark]
	mark.N = markSettledLate
	mark.Limits = []twotier.Limit{{Window: 1, Max: 2*markSettledLate - 1}}
	return s.Ops[i]
}

// Tally counts the holds that a node has made and settled, by namespace. A hold that one node makes
// may be settled by another one, so only sums over all nodes show how many are open, and how many
// have ended without being settled. The zero value is empty. It is safe for concurrent use.
type Tally struct {
	metrics.Unchecked

	// Now returns the time in unix milliseconds.
	Now func() int64

	mu     sync.Mutex
	spaces map[string]*spaceTally
}

// spaceTally counts the holds of a namespace.
type spaceTally struct {
	made, settled, expired int64
	// open has the holds made less those settled, by the second or minute in which they end.
	open map[int64]int64
}

const (
	// maxSpaces bounds the namespaces: their names come from clients.
	maxSpaces = 256
	// maxSlots bounds the slots of a namespace. Some 5,000 lie ahead at most.
	maxSlots = 8192
)

// slot returns the end of a hold with less precision if it is far away, so that there are few.
func slot(until, now int64) int64 {
	width := int64(1000)
	if until-now > 3_600_000 {
		width = 60_000
	}
	return (until + width - 1) / width * width
}

// Move counts a hold on a key of a namespace whose end moves from one time to another. A hold that
// is made has no end before, and a hold that is settled none afterwards: 0.
func (t *Tally) Move(ns string, from, until int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.spaces[ns]
	if s == nil {
		if len(t.spaces) >= maxSpaces {
			return
		}
		if t.spaces == nil {
			t.spaces = map[string]*spaceTally{}
		}
		s = &spaceTally{open: map[int64]int64{}}
		t.spaces[ns] = s
	}
	now := t.Now()
	if from == 0 {
		s.made++
	} else {
		s.open[slot(from, now)]--
	}
	if until == 0 {
		s.settled++
	} else {
		s.open[slot(until, now)]++
	}
	if len(s.open) > maxSlots {
		s.expire(now)
	}
}

// expire counts the holds that have ended as expired, and returns how many are open.
func (s *spaceTally) expire(now int64) (open int64) {
	for end, n := range s.open {
		if end <= now {
			s.expired += n
			delete(s.open, end)
		} else {
			open += n
		}
	}
	return open
}

// Collect implements [prometheus.Collector].
func (t *Tally) Collect(ch chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := metrics.Sink(ch)
	made := to.Totals("twotier_holds_made_total", "Holds on keys, by namespace.", "ns")
	settled := to.Totals("twotier_holds_settled_total",
		"Settlements of holds on keys, by namespace.", "ns")
	expired := to.Gauges("twotier_holds_expired",
		"Holds on keys that have ended without a settlement: the sum over all nodes.", "ns")
	opened := to.Gauges("twotier_holds_open",
		"Holds on keys that can be settled: the sum over all nodes.", "ns")
	now := t.Now()
	for ns, s := range t.spaces {
		open := s.expire(now)
		made(s.made, ns)
		settled(s.settled, ns)
		expired(s.expired, ns)
		opened(open, ns)
	}
}
