package decide

import (
	"bytes"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

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
