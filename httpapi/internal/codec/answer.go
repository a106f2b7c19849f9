package codec

import (
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/verdicts"
)

// Encoder appends the answers to the operations of a request, in the form in which the request
// spelled them.
type Encoder struct{ *ask.Request }

// AppendAnswer appends the answer to operation i.
func (e Encoder) AppendAnswer(b []byte, i int, res *twotier.Result) []byte {
	switch kind := e.Ops[i].Kind; {
	case e.Tag(i) == TagDistinct:
		return e.appendDistinct(b, i, res)
	case kind == twotier.Add:
		b = e.appendAdd(b, i, res)
	case kind == twotier.Count:
		return e.appendCount(b, i, res)
	default:
		b = e.appendAcquire(b, i, res)
	}
	if (e.HasRules() || e.HasValues()) && e.IsRuled(i) {
		b = wire.AppendField(b, "rules_version", e.RulesVersion())
	}
	if res.Degraded {
		b = append(b, `,"degraded":true`...)
	}
	return append(b, '}')
}

func appendSource(b []byte, res *twotier.Result) []byte {
	b = append(b, `,"source":"`...)
	b = append(b, res.Source...)
	return append(b, '"')
}

func (e Encoder) appendAdd(b []byte, i int, res *twotier.Result) []byte {
	b = wire.AppendKey(b, e.Ops[i].Checks[0].Key)
	b = e.appendCounts(b, i, res, counted)
	b = append(b, `,"over":`...)
	b = strconv.AppendBool(b, !res.Allowed)
	return appendSource(appendTime(b, res, 0), res)
}

// appendTime appends the time at which a check was counted, if there is a single one.
func appendTime(b []byte, res *twotier.Result, check int) []byte {
	if check < len(res.Checks) && res.Checks[check].TS != 0 {
		return wire.AppendField(b, "ts", res.Checks[check].TS)
	}
	return b
}

func (e Encoder) appendCount(b []byte, i int, res *twotier.Result) []byte {
	b = wire.AppendKey(b, e.Ops[i].Checks[0].Key)
	b = e.appendCounts(b, i, res, read)
	b = appendSource(b, res)
	b = wire.AppendField(b, "age_ms", res.AgeMS)
	b = append(b, `,"degraded":`...)
	b = strconv.AppendBool(b, res.Degraded)
	return append(b, '}')
}

// appendCounts appends the "counts" of an add or a count.
func (e Encoder) appendCounts(b []byte, i int, res *twotier.Result, f figures) []byte {
	b = append(b, `,"counts":[`...)
	if len(res.Checks) > 0 {
		b = e.appendLimits(b, i, 0, res, 0, res.Checks[0].Limits, f)
	}
	return append(b, ']')
}

// figures are the fields of a limit or window in an answer.
type figures uint8

const (
	counted       figures = iota // of an add
	read                         // of a count
	judged                       // of an acquire
	judgedValues                 // on values
	countedValues                // on values
)

// appendLimits appends limits of check j as elements of a list, except those of rules that are off.
// The first limit has this position among all limits of the check.
func (e Encoder) appendLimits(b []byte, i, j int, res *twotier.Result, first int,
	limits []twotier.LimitResult, f figures) []byte {
	beyond := int64(0)
	if f == judged && e.HasRules() {
		beyond = e.Ops[i].NeededBeyond(j, res)
	}
	for k := range limits {
		l := &limits[k]
		most, refused := l.Max, l.Refused
		var r *verdicts.Ruled
		if e.HasRules() {
			r = e.RuleOf(i, j, first+k)
		}
		if r != nil {
			if r.Rule.State == twotier.RuleOff {
				continue
			}
			most, refused = r.Limit().Max, r.Refuses(l, beyond)
		}
		b = e.appendWindow(b, i, j, first+k, r)
		if f == judged || f == judgedValues {
			b = wire.AppendField(b, "max", most)
		}
		b = wire.AppendField(b, "count", l.Count)
		switch f {
		case judged:
			b = wire.AppendField(b, "remaining", max(0, most-l.Count))
			if l.Hi > l.Count && most == l.Max {
				b = wire.AppendField(b, "lent", l.Hi-l.Count)
			}
		case judgedValues, countedValues:
			b = wire.AppendField(b, "at_least", l.Lo)
			b = wire.AppendField(b, "at_most", l.Hi)
			b = strconv.AppendFloat(append(b, `,"error":`...), l.Error, 'g', 3, 64)
		default:
			b = wire.AppendField(b, "min", l.Lo)
			b = wire.AppendField(b, "max", l.Hi)
		}
		if f == read {
			b = wire.AppendField(b, "bucket_ms", l.BucketMS)
		}
		if l.Period != nil {
			b = e.appendPeriod(b, i, j, l.Period, res)
		}
		if refused && f >= judged {
			b = append(b, `,"refused":true`...)
		}
		if r != nil {
			b = appendRule(b, r.Rule)
		}
		b = append(b, '}')
	}
	return b
}

// appendWindow begins the object of limit k of check j, which rule r added if it is not nil, as one
// element of a list.
func (e Encoder) appendWindow(b []byte, i, j, k int, r *verdicts.Ruled) []byte {
	if b[len(b)-1] != '[' {
		b = append(b, ',')
	}
	b = append(b, `{"window":"`...)
	if r != nil { // anything that parses as a window needs no escaping
		b = append(b, r.Limit().Text...)
	} else if text := e.WindowText(i, j, k); text != nil {
		b = append(b, text...)
	} else {
		b = append(b, e.Ops[i].Checks[j].Limits[k].Period.String()...)
	}
	return append(b, '"')
}

// appendHold appends the id of the hold that operation i has made, if any, and its end.
func (e Encoder) appendHold(b []byte, i int, res *twotier.Result) []byte {
	if id := e.HoldID(i, res); id != "" {
		b = append(append(append(b, `,"hold":"`...), id...), '"')
		b = wire.AppendField(b, "until", e.Ops[i].Until)
	}
	return b
}

func (e Encoder) appendAcquire(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, res.Allowed)
	if e.Tag(i) == TagChecks {
		b = e.appendChecks(b, i, res)
	} else if len(res.Checks) > 0 {
		b = e.appendCheck(b, i, 0, res)
	}
	if !res.Allowed {
		b = e.appendRefusedBy(b, i, res)
		b = appendRefusal(b, e.RefusalOf(i))
	}
	if e.Warns() {
		b = e.appendNear(b, i, res)
	}
	if len(res.Bans) > 0 {
		b = e.appendBans(b, i, res)
	}
	b = wire.AppendField(b, "retry_after_ms", res.RetryAfter)
	if e.Tag(i) != TagChecks {
		b = appendTime(b, res, 0)
	}
	if e.Ops[i].Hold > 0 {
		b = e.appendHold(b, i, res)
	}
	return appendSource(b, res)
}

// appendRefusal appends the id of a refusal, if it has one.
func appendRefusal(b []byte, id decisions.RefusalID) []byte {
	if id.IsZero() {
		return b
	}
	return append(id.Append(append(b, `,"id":"`...)), '"')
}

func (e Encoder) appendChecks(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `,"checks":[`...)
	for j := range res.Checks {
		c := &res.Checks[j]
		if j > 0 {
			b = append(b, ',')
		}
		b = wire.AppendKey(b, e.Ops[i].Checks[j].Key)
		b = append(b, `,"allowed":`...)
		b = strconv.AppendBool(b, !c.Refused)
		b = e.appendCheck(b, i, j, res)
		b = wire.AppendField(b, "retry_after_ms", c.RetryAfter)
		b = append(appendTime(b, res, j), '}')
	}
	return append(b, ']')
}

// appendCheck appends the limits of check j of an acquire, and the counts of its values, if it has
// any.
func (e Encoder) appendCheck(b []byte, i, j int, res *twotier.Result) []byte {
	b = e.appendLimits(append(b, `,"limits":[`...), i, j, res, 0, res.Checks[j].Limits, judged)
	if len(res.Leases) > 0 {
		b = appendLeases(b, j, res)
	}
	b = append(b, ']')
	if e.HasValues() {
		if v := e.ValuesOf(i, j, res); v.Result != nil {
			b = append(e.appendValues(append(b, `,"values":{`...), i, j, res, v), '}')
		}
	}
	return b
}

// appendLeases appends the limits of check j on how many leases are open.
func appendLeases(b []byte, j int, res *twotier.Result) []byte {
	for k := range res.Leases {
		l := &res.Leases[k]
		if l.Check != j {
			continue
		}
		b = strconv.AppendInt(append(wire.AppendComma(b), `{"concurrent":`...), l.Max, 10)
		b = wire.AppendField(b, "open", l.Open)
		b = wire.AppendField(b, "remaining", max(0, l.Max-l.Open))
		if l.Refused {
			b = append(b, `,"refused":true`...)
		}
		if l.Rule != "" {
			b = append(append(append(b, `,"rule":"`...), l.Rule...), '"')
		}
		if l.Shadow {
			b = append(b, `,"shadow":true`...)
		}
		b = append(b, '}')
	}
	return b
}

// appendRefusedBy appends the paths of the limits that refused.
func (e Encoder) appendRefusedBy(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `,"refused_by":[`...)
	for j := range res.Checks {
		for k := range res.Checks[j].Limits {
			if res.Checks[j].Limits[k].Refused {
				b = e.appendPath(b, i, j, k)
			}
		}
		for k := range res.Leases {
			if l := &res.Leases[k]; l.Check == j && l.Refused && !l.Shadow {
				b = append(wire.AppendComma(b), '"')
				if b = e.appendCheckPath(b, i, j); l.Rule != "" {
					b = append(append(b, l.Rule...), '/')
				}
				b = append(b, `concurrent"`...)
			}
		}
		for _, k := range e.RefusingValues(i, j, e.ValuesOf(i, j, res)) {
			b = e.appendPath(b, i, j, k)
		}
		for k := range res.Bans {
			if ban := &res.Bans[k]; ban.Check == j && !ban.Started {
				b = append(wire.AppendComma(b), '"')
				b = e.appendCheckPath(b, i, j)
				b = append(append(b, ban.Rule...), `/ban"`...)
			}
		}
	}
	return append(b, ']')
}

// appendNear appends the paths of the limits that allow, and whose counts have reached the warning
// level of their rule, if there are any.
func (e Encoder) appendNear(b []byte, i int, res *twotier.Result) []byte {
	start := len(b)
	b = append(b, `,"near":[`...)
	empty := len(b)
	for j := range res.Checks {
		b = e.appendNearLimits(b, i, j, res, 0, res.Checks[j].Limits)
		v := e.ValuesOf(i, j, res)
		b = e.appendNearLimits(b, i, j, res, v.First, v.Judged)
	}
	if len(b) == empty {
		return b[:start]
	}
	return append(b, ']')
}

// appendNearLimits appends the paths of such limits of check j. The first limit has this position
// among all limits of the check.
func (e Encoder) appendNearLimits(b []byte, i, j int, res *twotier.Result, first int,
	limits []twotier.LimitResult) []byte {
	beyond := e.Ops[i].NeededBeyond(j, res)
	for k := range limits {
		o := e.RuleOf(i, j, first+k)
		if o.IsNear(&limits[k]) && !o.Refuses(&limits[k], beyond) {
			b = e.appendPath(b, i, j, first+k)
		}
	}
	return b
}

// appendBans appends the active bans: the rule, the key, the end, and whether this refusal started
// the ban.
func (e Encoder) appendBans(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `,"bans":[`...)
	for k := range res.Bans {
		ban := &res.Bans[k]
		b = append(append(wire.AppendComma(b), `{"rule":"`...), ban.Rule...)
		b = wire.AppendString(append(b, `","key":`...), e.Ops[i].Checks[ban.Check].Key)
		b = wire.AppendField(b, "until", ban.Until)
		if ban.Started {
			b = append(b, `,"started":true`...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendCheckPath appends the path of a check, if the request spelled it in a list.
func (e Encoder) appendCheckPath(b []byte, i, j int) []byte {
	if e.Tag(i) == TagChecks {
		b = append(b, "checks["...)
		b = strconv.AppendInt(b, int64(j), 10)
		b = append(b, "]."...)
	}
	return b
}

// appendPath appends the path of a limit as the request spelled it or, for a rule's limit, the name
// of the policy, as an element of a list.
func (e Encoder) appendPath(b []byte, i, j, k int) []byte {
	b = e.appendCheckPath(append(wire.AppendComma(b), '"'), i, j)
	return append(e.AppendLimitName(b, i, j, k), '"')
}
