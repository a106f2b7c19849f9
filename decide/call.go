package decide

import (
	"bytes"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// Key is the knowledge about the key of a check.
type Key struct {
	// View has its counts, at the present.
	View leaparray.View
	// Values has what is known of the key of a ValuesCheck, in place of View's counters.
	Values leaparray.ValuesView
	// Extra is the sum that the other checks of the operation count of the key.
	Extra int64
	// Reserved are the events of other operations that are decided, and neither confirmed nor
	// undone. They may lie anywhere in a window.
	Reserved int64
	// Lent are the events that others may have admitted and that View lacks. Default: none.
	Lent Loans
	// Credit decides an Acquire in place of the key's limits, for another owner. Default: none.
	Credit Credit
	// Doubtful refuses an Acquire: a mark of the key may exist that View lacks.
	Doubtful bool
}

// Loans are events of a key that others may admit.
type Loans interface {
	// LentWithin returns how many of them may lie in a window of this many milliseconds that ends
	// at a time or later.
	LentWithin(window, at int64, now time.Time) int64
}

// Credit is a share of a key's limits that may be admitted without asking its owner.
type Credit interface {
	// AnswerCheck answers a check of n events at ts.
	AnswerCheck(n int64, v leaparray.View, ts int64, now time.Time, r *twotier.CheckResult)
}

// Change is a change of the key of a check.
type Change struct {
	Check int
	Kind  ChangeKind
	// At is the time of the events, in unix milliseconds.
	At int64
	// N is the number of events, negative if they are taken back.
	N int64
}

// ChangeKind is a kind of [Change].
type ChangeKind uint8

// Kinds of changes.
const (
	// Count counts N events in the bucket of At.
	Count ChangeKind = iota
	// Take takes -N events back from the newest buckets.
	Take
	// Mark adds N to the millisecond At, which lies ahead: the end of a lease or a ban.
	Mark
	// See adds the values of the check, which were seen at At. N is their number.
	See
)

// BanEnd returns the end of the last ban in a view of a ban's key, in unix milliseconds, or 0 if
// none ends after now. A ban is an event at the millisecond in which it ends, so a new length in
// the rule changes no existing ban. If several writers have started one independently, the last to
// end counts.
func BanEnd(v leaparray.View) (end int64) {
	for at := range v.Cells() {
		if last := at.End() - 1; last > max(end, v.Now) && v.Value(at) > 0 {
			end = last
		}
	}
	return end
}

// OpenLeases returns the number of leases in a view of a lease's key that have not ended. A lease
// is an event at the millisecond in which it ends. Events that lie ahead never fold, so wider
// buckets hold leases that have ended.
func OpenLeases(v leaparray.View) (open int64) {
	eachOpen(v, func(_, n int64) { open += n })
	return max(0, open)
}

// eachOpen calls fn with the end of each open lease, and with how many end then.
func eachOpen(v leaparray.View, fn func(end, n int64)) {
	for at, n := range v.Cells() {
		if at.Width == 1 && at.Start > v.Now {
			fn(at.Start, n)
		}
	}
}

// Call is an operation that is being decided. Its memory may be used again for the next one.
type Call struct {
	Op *twotier.Op
	// Now is the present and TS the time of the events, in unix milliseconds.
	Now, TS int64
	// Wall is the present by the clock of loans and credits.
	Wall time.Time
	// Keys has the knowledge about the key of each check.
	Keys []Key
	// Changes has the changes that Acquire or AddCounts decided on.
	Changes []Change

	with []leaparray.ValueCount // the counts of all limits on values, with those of the check
	seen []int64                // when the values of a check were last seen
}

// CheckReach returns an error if one of the limits of an Add can't be compared.
func (c *Call) CheckReach() error {
	for i := range c.Keys {
		limits := c.Op.Checks[i].Limits
		for j := range limits {
			window := limits[j].WindowAt(c.TS)
			covered := c.Keys[i].View.Covers(window, c.TS)
			if c.Op.Checks[i].IsValues() {
				covered = c.coversValues(i, window)
			}
			if !covered {
				return c.reachError(i, &limits[j])
			}
		}
	}
	return nil
}

// Compare compares all checks with their limits, and fills in the result.
func (c *Call) Compare(res *twotier.Result) error {
	res.Allowed = true
	c.with = c.with[:0]
	for i := range c.Keys {
		r := res.AddCheck()
		if err := c.compareCheck(i, r); err != nil {
			return err
		}
		if k := &c.Keys[i]; k.Doubtful && k.Credit == nil && c.Op.Kind == twotier.Acquire {
			r.Refused, r.RetryAfter = true, max(r.RetryAfter, doubtRetry)
		}
		if r.Refused {
			res.Allowed = false
			if r.RetryAfter < 0 || res.RetryAfter >= 0 && r.RetryAfter > res.RetryAfter {
				res.RetryAfter = r.RetryAfter
			}
		}
	}
	return nil
}

// Acquire decides an Acquire. It fills in the result as it is once Changes are carried out. If
// reserve is set, an admitted operation changes nothing yet: its events are reserved.
func (c *Call) Acquire(res *twotier.Result, reserve bool) error {
	c.Changes = c.Changes[:0]
	if err := c.Compare(res); err != nil {
		return err
	}
	counted := res.Allowed || !reserve && c.Op.CountsRefused(res)
	if counted && !c.Op.DryRun && !reserve {
		c.AddCounts(!res.Allowed)
	}
	if !res.Allowed && !c.Op.DryRun {
		c.startBans(res)
	}
	if counted {
		c.includeCounted(res)
		if !c.Op.DryRun {
			c.SetTimes(res)
		}
	}
	return nil
}

// AddCounts adds the changes that count all checks. A refused operation takes no leases.
func (c *Call) AddCounts(refused bool) {
	for i := range c.Op.Checks {
		check := &c.Op.Checks[i]
		switch {
		case check.N == 0 || refused && check.IsLease():
		case check.IsLease():
			c.Changes = append(c.Changes, Change{i, Mark, check.Until, check.N})
		case check.IsValues():
			c.Changes = append(c.Changes, Change{i, See, c.TS, check.N})
		case c.Op.TakesNewest():
			c.Changes = append(c.Changes, Change{i, Take, c.TS, check.N})
		default:
			c.Changes = append(c.Changes, Change{i, Count, c.TS, check.N})
		}
	}
}

// startBans adds the changes that start the bans of a refused Acquire.
func (c *Call) startBans(res *twotier.Result) {
	banned := 0
	for i := range c.Keys {
		check, r := &c.Op.Checks[i], &res.Checks[i]
		switch {
		case check.IsLease(), check.IsValues():
		case !check.IsBan():
			banned = i
		case !r.Refused && len(check.Limits) == 1 && c.breaches(banned, res, check.Ban):
			lr := &r.Limits[0]
			end := c.startedBan(check)
			if end == 0 {
				end = c.Now + lr.Window
				c.Changes = append(c.Changes, Change{i, Mark, end, 1})
			}
			applyBan(end, c.Now, lr, r)
			if r.TS = c.Now; res.RetryAfter >= 0 {
				res.RetryAfter = max(res.RetryAfter, r.RetryAfter)
			}
		}
	}
}

// startedBan returns the end of the ban that another check of the same key has just started, or 0.
func (c *Call) startedBan(check *twotier.Check) int64 {
	for _, change := range c.Changes {
		o := &c.Op.Checks[change.Check]
		if o.IsBan() && bytes.Equal(o.Key, check.Key) && bytes.Equal(o.NS, check.NS) {
			return change.At
		}
	}
	return 0
}

// breaches reports whether a refused Acquire breaches one of the ban's limits by counts alone, and
// not only because of others' reservations and loans.
func (c *Call) breaches(banned int, res *twotier.Result, b twotier.Ban) bool {
	r, own := &res.Checks[banned], c.Op.Checks[banned].Needed(c.Keys[banned].Extra)
	for i := int(b.From); i < min(int(b.To), len(r.Limits)); i++ {
		if lr := &r.Limits[i]; lr.Refused && lr.Count+own > lr.Max {
			return true
		}
	}
	return false
}

// includeCounted adds the counts of an Acquire to its figures.
func (c *Call) includeCounted(res *twotier.Result) {
	with := c.with
	for i := range c.Keys {
		check := &c.Op.Checks[i]
		if !res.Allowed && check.IsLease() {
			continue
		}
		if check.IsValues() {
			for j := range res.Checks[i].Limits {
				setValueCount(&res.Checks[i].Limits[j], with[j])
			}
			with = with[len(res.Checks[i].Limits):]
			continue
		}
		n := check.N + c.Keys[i].Extra
		for j := range res.Checks[i].Limits {
			lr := &res.Checks[i].Limits[j]
			lr.Count, lr.Lo, lr.Hi = lr.Count+n, lr.Lo+n, lr.Hi+n
		}
	}
}

// SetTimes records when the checks are counted. What takes counts back from the newest buckets has
// no time.
func (c *Call) SetTimes(res *twotier.Result) {
	if c.Op.TakesNewest() {
		return
	}
	for i := range res.Checks {
		check := &c.Op.Checks[i]
		switch {
		case check.N == 0 || !res.Allowed && check.IsLease():
		case check.IsLease():
			res.Checks[i].TS = check.Until
		default:
			res.Checks[i].TS = c.TS
		}
	}
}

func (c *Call) reachError(i int, limit *twotier.Limit) error {
	return twotier.OutOfReach(c.Op, c.Keys[i].View.Ladder, limit.WindowAt(c.TS), c.TS, c.Now)
}
