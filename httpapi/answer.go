package httpapi

import (
	"strconv"

	"twotier.dev/twotier/syncer"
)

// appendAnswer appends the answer to operation i.
func (d *decoder) appendAnswer(b []byte, i int, res *syncer.Result) []byte {
	switch d.ops[i].Kind {
	case syncer.Add:
		b = d.appendAdd(b, i, res)
	case syncer.Count:
		return d.appendCount(b, i, res)
	default:
		b = d.appendAcquire(b, i, res)
	}
	if res.Degraded {
		b = append(b, `,"degraded":true`...)
	}
	return append(b, '}')
}

// appendKey appends {"key":k; the caller closes the object.
func appendKey(b, key []byte) []byte {
	return appendString(append(b, `{"key":`...), key)
}

func appendSource(b []byte, res *syncer.Result) []byte {
	b = append(b, `,"source":"`...)
	b = append(b, res.Source...)
	return append(b, '"')
}

func (d *decoder) appendAdd(b []byte, i int, res *syncer.Result) []byte {
	b = appendKey(b, d.ops[i].Checks[0].Key)
	b = d.appendCounts(b, i, res, false)
	b = append(b, `,"over":`...)
	b = strconv.AppendBool(b, !res.Allowed)
	return appendSource(b, res)
}

func (d *decoder) appendCount(b []byte, i int, res *syncer.Result) []byte {
	b = appendKey(b, d.ops[i].Checks[0].Key)
	b = d.appendCounts(b, i, res, true)
	b = appendSource(b, res)
	b = appendField(b, "age_ms", res.AgeMS)
	b = append(b, `,"degraded":`...)
	b = strconv.AppendBool(b, res.Degraded)
	return append(b, '}')
}

// appendCounts appends the "counts" of an add or a count.
func (d *decoder) appendCounts(b []byte, i int, res *syncer.Result, buckets bool) []byte {
	b = append(b, `,"counts":[`...)
	if len(res.Checks) > 0 {
		for k := range res.Checks[0].Limits {
			l := &res.Checks[0].Limits[k]
			b = d.appendWindow(b, i, 0, k)
			b = appendField(b, "count", l.Count)
			b = appendField(b, "min", l.Lo)
			b = appendField(b, "max", l.Hi)
			if buckets {
				b = appendField(b, "bucket_ms", l.BucketMS)
			}
			b = append(b, '}')
		}
	}
	return append(b, ']')
}

// appendWindow begins the object of limit k of check j, as one element of a list.
func (d *decoder) appendWindow(b []byte, i, j, k int) []byte {
	if k > 0 {
		b = append(b, ',')
	}
	b = append(b, `{"window":"`...)
	b = append(b, d.windowText(i, j, k)...) // anything that parses as a duration needs no escaping
	return append(b, '"')
}

func (d *decoder) appendAcquire(b []byte, i int, res *syncer.Result) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, res.Allowed)
	if d.forms[i].checks {
		b = d.appendChecks(b, i, res)
	} else if len(res.Checks) > 0 {
		b = d.appendLimits(b, i, 0, &res.Checks[0])
	}
	if !res.Allowed {
		b = d.appendRefusedBy(b, i, res)
	}
	b = appendField(b, "retry_after_ms", res.RetryAfter)
	return appendSource(b, res)
}

func (d *decoder) appendChecks(b []byte, i int, res *syncer.Result) []byte {
	b = append(b, `,"checks":[`...)
	for j := range res.Checks {
		c := &res.Checks[j]
		if j > 0 {
			b = append(b, ',')
		}
		b = appendKey(b, d.ops[i].Checks[j].Key)
		b = append(b, `,"allowed":`...)
		b = strconv.AppendBool(b, !c.Refused)
		b = d.appendLimits(b, i, j, c)
		b = appendField(b, "retry_after_ms", c.RetryAfter)
		b = append(b, '}')
	}
	return append(b, ']')
}

func (d *decoder) appendLimits(b []byte, i, j int, c *syncer.CheckResult) []byte {
	b = append(b, `,"limits":[`...)
	for k := range c.Limits {
		l := &c.Limits[k]
		b = d.appendWindow(b, i, j, k)
		b = appendField(b, "max", l.Max)
		b = appendField(b, "count", l.Count)
		b = appendField(b, "remaining", remaining(l))
		if l.Refused {
			b = append(b, `,"refused":true`...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// remaining returns how many more events a limit allows.
func remaining(l *syncer.LimitResult) int64 { return max(0, l.Max-l.Count) }

// appendRefusedBy appends the paths of the limits that refused.
func (d *decoder) appendRefusedBy(b []byte, i int, res *syncer.Result) []byte {
	b = append(b, `,"refused_by":[`...)
	n := 0
	for j := range res.Checks {
		for k := range res.Checks[j].Limits {
			if !res.Checks[j].Limits[k].Refused {
				continue
			}
			if n++; n > 1 {
				b = append(b, ',')
			}
			b = append(b, '"')
			b = d.appendPath(b, i, j, k)
			b = append(b, '"')
		}
	}
	return append(b, ']')
}

// appendPath appends the path of a limit as the request spelled it.
func (d *decoder) appendPath(b []byte, i, j, k int) []byte {
	if d.forms[i].checks {
		b = append(b, "checks["...)
		b = strconv.AppendInt(b, int64(j), 10)
		b = append(b, "]."...)
	}
	b = append(b, "limits["...)
	b = strconv.AppendInt(b, int64(k), 10)
	return append(b, ']')
}
