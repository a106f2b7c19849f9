package decide

import (
	"math"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

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
	if acquire && k.Doubtful {
		r.Refused, r.RetryAfter = true, max(r.RetryAfter, doubtRetry)
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
