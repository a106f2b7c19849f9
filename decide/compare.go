package decide

import (
	"cmp"
	"math"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// RetryAfter of a refusal, in milliseconds: for a key whose past is in doubt, and for a refusal
// caused only by reservations.
const (
	doubtRetry    = 1000
	reservedRetry = 50
)

// compareCheck compares a check with its limits.
func (c *Call) compareCheck(i int, r *twotier.CheckResult) error {
	check, k := &c.Op.Checks[i], &c.Keys[i]
	acquire := c.Op.Kind == twotier.Acquire
	switch {
	case check.IsLease():
		c.compareLease(check, k, r)
		return nil
	case check.IsValues():
		return c.compareValues(i, r)
	}
	if k.Credit != nil && acquire {
		k.Credit.AnswerCheck(check.Needed(k.Extra), k.View, c.TS, c.Wall, r)
		return nil
	}
	for j := range check.Limits {
		limit := &check.Limits[j]
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), Period: limit.Period}
		var ok bool
		switch {
		case acquire && check.IsBan():
			applyBan(BanEnd(k.View), k.View.Now, &lr, r)
			ok = true
		case acquire:
			ok = c.admits(check, k, &lr, r)
		default:
			var e leaparray.Estimate
			e, ok = k.View.Count(limit.WindowAt(c.TS), c.TS, c.TS >= c.Now)
			// Pending may take back counts that another counter has meanwhile taken back as well.
			lr.Count, lr.Lo, lr.Hi = max(0, e.Count), max(0, e.Lo), max(0, e.Hi)
			lr.BucketMS = e.Width
			lr.Refused = c.Op.Kind == twotier.Add && e.Hi > lr.Max
		}
		if !ok {
			return c.reachError(i, limit)
		}
		r.Refused = r.Refused || lr.Refused
		r.Limits = append(r.Limits, lr)
	}
	return nil
}

// admits compares one limit of an Acquire with the sum of all its checks of the key. It returns
// false if the limit's window is out of reach.
func (c *Call) admits(check *twotier.Check, k *Key, lr *twotier.LimitResult,
	r *twotier.CheckResult) bool {
	window := lr.Window
	var peak, blur int64
	var ok bool
	if lr.Period == nil {
		peak, blur, ok = k.View.PeakBlur(window, c.TS)
	} else {
		window, peak, blur, ok = sumPeriod(lr.Period, k.View, c.TS)
	}
	if !ok {
		return false
	}
	peak = max(0, peak) // as in compareCheck
	lr.Count, lr.Lo, lr.Hi, lr.BucketMS = peak, peak, peak, blur
	own := check.Needed(k.Extra)
	n := own + k.Reserved
	if k.Lent != nil {
		// An event of the past is in windows that have ended, and ended loans may be in these.
		lent := k.Lent.LentWithin(window, min(c.TS, c.Now), c.Wall)
		lr.Hi += lent
		n += lent
	}
	if peak+n <= lr.Max {
		return true
	}
	lr.Refused = true
	retry := int64(reservedRetry)
	switch {
	case peak+own <= lr.Max:
	case lr.Period == nil:
		retry = k.View.RetryAfter(window, c.TS, own, lr.Max)
	default:
		retry = waitForNextPeriod(lr, c.TS, own)
	}
	if r.RetryAfter >= 0 && (retry < 0 || retry > r.RetryAfter) {
		r.RetryAfter = retry
	}
	return true
}

// sumPeriod returns the sum of the period around a moment, including events later than the moment,
// and the uncertainty of its edges. window is the length of the period up to the moment. sumPeriod
// returns false if the period's start is out of reach.
func sumPeriod(p *twotier.Period, v leaparray.View, at int64) (window, sum, blur int64, ok bool) {
	start, end := p.Around(at)
	window = at - start + 1
	if !v.Covers(window, at) {
		return 0, 0, 0, false
	}
	return window, v.UpperBound(start, end-1), max(v.EdgeWidth(start), v.EdgeWidth(end)), true
}

// waitForNextPeriod returns how long n events at a moment have to wait for the next period, in
// milliseconds; -1 if no period has room for them.
func waitForNextPeriod(lr *twotier.LimitResult, at, n int64) int64 {
	if n > lr.Max {
		return -1
	}
	_, end := lr.Period.Around(at)
	return end - at
}

// compareLease compares an Acquire that takes or returns leases with the open leases.
func (c *Call) compareLease(check *twotier.Check, k *Key, r *twotier.CheckResult) {
	limit := &check.Limits[0]
	lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), BucketMS: 1}
	need := check.N + k.Extra
	retry := int64(-1)
	if check.N < 0 {
		lr.Count = k.View.Value(leaparray.Moment(check.Until))
		lr.Refused = check.Until <= c.Now || lr.Count+min(check.N, need) < 0
	} else {
		need, lr.Count = max(0, need), OpenLeases(k.View)
		lr.Refused = lr.Count+need+k.Reserved > lr.Max
		switch {
		case need > lr.Max:
		case lr.Count+need > lr.Max:
			retry = untilOpen(k.View, lr.Max-need)
		default:
			retry = reservedRetry
		}
	}
	lr.Lo, lr.Hi = lr.Count, lr.Count
	if lr.Refused {
		r.Refused, r.RetryAfter = true, retry
	}
	r.Limits = append(r.Limits, lr)
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

// applyBan fills in both results for a check that stands for a ban that ends at a time. An active
// ban refuses all callers now, even for an event of the past.
func applyBan(end, now int64, lr *twotier.LimitResult, r *twotier.CheckResult) {
	lr.BucketMS = 1
	if end > now {
		lr.Refused, lr.Count, lr.Lo, lr.Hi = true, 1, 1, end
		r.Refused, r.RetryAfter = true, end-now
	}
}

// coversValues reports whether a window that ends at the time of the operation begins when the
// values of a check's key are still known.
func (c *Call) coversValues(i int, window int64) bool {
	return min(c.TS, c.Now)-window >= c.Now-c.Keys[i].View.Ladder.Span()
}

// compareValues compares a check of different values with its limits. An Acquire compares what the
// windows would have with its values.
func (c *Call) compareValues(i int, r *twotier.CheckResult) error {
	check, k := &c.Op.Checks[i], &c.Keys[i]
	acquire := c.Op.Kind == twotier.Acquire
	var more []uint64
	if acquire {
		more = check.Values
		c.seen = k.Values.AppendSeen(c.seen[:0], more)
	}
	until := c.TS
	if c.Op.TS == 0 || c.TS >= c.Now {
		until = math.MaxInt64 // others may have seen values while it waited, or by a clock ahead
	}
	for j := range check.Limits {
		limit := &check.Limits[j]
		if !c.coversValues(i, limit.Window) {
			return c.reachError(i, limit)
		}
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), BucketMS: 1}
		without, with := k.Values.CountWith(c.TS-limit.Window, until, more, c.seen)
		setValueCount(&lr, without)
		n := with.Count
		if acquire {
			c.with = append(c.with, with)
			n += k.Reserved + max(0, k.Extra)
		}
		if lr.Refused = c.Op.Kind != twotier.Count && n > lr.Max; lr.Refused && acquire {
			refuseValues(k, &lr, r, c.TS, with.Count, more)
		}
		r.Refused = r.Refused || lr.Refused
		r.Limits = append(r.Limits, lr)
	}
	return nil
}

// refuseValues records after how long a limit would have room for further values, with which the
// window has n.
func refuseValues(k *Key, lr *twotier.LimitResult, r *twotier.CheckResult, at, n int64,
	more []uint64) {
	retry := int64(reservedRetry)
	if n > lr.Max {
		retry = k.Values.RetryAfter(lr.Window, lr.Max, at, more)
	}
	if r.RetryAfter >= 0 && (retry < 0 || retry > r.RetryAfter) {
		r.RetryAfter = retry
	}
}

func setValueCount(lr *twotier.LimitResult, n leaparray.ValueCount) {
	lr.Count, lr.Lo, lr.Hi, lr.Error = n.Count, n.Min, n.Max, n.Error
}
