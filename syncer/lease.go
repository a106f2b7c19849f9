package syncer

import (
	"cmp"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// A lease is an event at the millisecond in which the lease ends. Events that lie ahead never fold,
// so wider buckets hold leases that have ended. direct.lua does the same.

// OpenLeases returns the number of leases in a view of a lease's key that have not ended.
func OpenLeases(v leaparray.View) (open int64) {
	eachOpen(v, func(_, n int64) { open += n })
	return max(0, open)
}

// eachOpen calls fn with the end of each open lease, and with how many end then.
func eachOpen(v leaparray.View, fn func(end, n int64)) {
	visit := func(at leaparray.Stretch, n int64) bool {
		if at.Width == 1 && at.Start > v.Now {
			fn(at.Start, n)
		}
		return true
	}
	v.Ladder.EachCell(v.A, visit)
	v.Ladder.EachCell(v.B, visit)
}

// untilOpen returns how long it takes, in milliseconds, until no more than most leases are open if
// none are taken or returned.
func untilOpen(v leaparray.View, most int64) int64 {
	type lease struct{ end, n int64 }
	var all []lease
	open := int64(0)
	eachOpen(v, func(end, n int64) { all, open = append(all, lease{end, n}), open+n })
	slices.SortFunc(all, func(a, b lease) int { return cmp.Compare(a.end, b.end) })
	for i, l := range all {
		open -= l.n
		if same := i+1 < len(all) && all[i+1].end == l.end; !same && open <= most {
			return l.end - v.Now
		}
	}
	return 0
}

// compareLease compares an Acquire that takes or returns leases with those that are open.
func (k *call) compareLease(t *target, v leaparray.View, r *twotier.CheckResult) {
	limit := &t.check.Limits[0]
	lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), BucketMS: 1}
	need := t.check.N + t.extra
	retry := int64(-1)
	if t.check.N < 0 {
		lr.Count = v.Value(leaparray.Moment(t.check.Until))
		lr.Refused = t.check.Until <= k.now || lr.Count+min(t.check.N, need) < 0
	} else {
		need, lr.Count = max(0, need), OpenLeases(v)
		others := t.p.reservations.ReservedEvents(t.ns, t.check.Key)
		lr.Refused = lr.Count+need+others > lr.Max
		switch {
		case need > lr.Max:
		case lr.Count+need > lr.Max:
			retry = untilOpen(v, lr.Max-need)
		default:
			retry = reservedRetry
		}
	}
	lr.Lo, lr.Hi = lr.Count, lr.Count
	if lr.Refused {
		r.Refused, r.RetryAfter = true, retry
	}
	r.Limits = append(r.Limits, lr)
	t.setAtLimit(r.Refused)
}

// countLease takes or returns the target's leases. Its entry exists.
func (t *target) countLease(e keys.Entry) {
	t.p.keys.AddPending(e, t.sp.Ladder, leaparray.Moment(t.check.Until), t.check.N)
	t.stamped = t.check.Until
}
