package httpapi

import (
	"strconv"
	"unicode/utf8"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
)

// appendAnswer appends the answer to operation i.
func (d *decoder) appendAnswer(b []byte, i int, res *twotier.Result) []byte {
	switch d.Ops[i].Kind {
	case twotier.Add:
		b = d.appendAdd(b, i, res)
	case twotier.Count:
		return d.appendCount(b, i, res)
	default:
		b = d.appendAcquire(b, i, res)
	}
	if d.HasRules() && d.Ruled(i) {
		b = appendField(b, "rules_version", d.RulesVersion())
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

func appendSource(b []byte, res *twotier.Result) []byte {
	b = append(b, `,"source":"`...)
	b = append(b, res.Source...)
	return append(b, '"')
}

func (d *decoder) appendAdd(b []byte, i int, res *twotier.Result) []byte {
	b = appendKey(b, d.Ops[i].Checks[0].Key)
	b = d.appendCounts(b, i, res, false)
	b = append(b, `,"over":`...)
	b = strconv.AppendBool(b, !res.Allowed)
	return appendSource(appendTime(b, res, 0), res)
}

// appendTime appends the time at which a check was counted, if there is a single one.
func appendTime(b []byte, res *twotier.Result, check int) []byte {
	if check < len(res.Checks) && res.Checks[check].TS != 0 {
		return appendField(b, "ts", res.Checks[check].TS)
	}
	return b
}

func (d *decoder) appendCount(b []byte, i int, res *twotier.Result) []byte {
	b = appendKey(b, d.Ops[i].Checks[0].Key)
	b = d.appendCounts(b, i, res, true)
	b = appendSource(b, res)
	b = appendField(b, "age_ms", res.AgeMS)
	b = append(b, `,"degraded":`...)
	b = strconv.AppendBool(b, res.Degraded)
	return append(b, '}')
}

// appendCounts appends the "counts" of an add or a count.
func (d *decoder) appendCounts(b []byte, i int, res *twotier.Result, buckets bool) []byte {
	b = append(b, `,"counts":[`...)
	if len(res.Checks) > 0 {
		for k := range res.Checks[0].Limits {
			l := &res.Checks[0].Limits[k]
			var r *ask.RuledLimit
			if d.HasRules() {
				r = d.RuleOf(i, 0, k)
			}
			if r != nil && r.Rule.State == twotier.RuleOff {
				continue
			}
			b = d.appendWindow(b, i, 0, k)
			b = appendField(b, "count", l.Count)
			b = appendField(b, "min", l.Lo)
			b = appendField(b, "max", l.Hi)
			if buckets {
				b = appendField(b, "bucket_ms", l.BucketMS)
			}
			if r != nil {
				b = appendRule(b, r.Rule)
			}
			b = append(b, '}')
		}
	}
	return append(b, ']')
}

// appendWindow begins the object of limit k of check j, as one element of a list.
func (d *decoder) appendWindow(b []byte, i, j, k int) []byte {
	if b[len(b)-1] != '[' {
		b = append(b, ',')
	}
	b = append(b, `{"window":"`...)
	b = append(b, d.WindowText(i, j, k)...) // anything that parses as a duration needs no escaping
	return append(b, '"')
}

func (d *decoder) appendAcquire(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, res.Allowed)
	if d.Tag(i) == tagChecks {
		b = d.appendChecks(b, i, res)
	} else if len(res.Checks) > 0 {
		b = d.appendLimits(b, i, 0, res)
	}
	if !res.Allowed {
		b = d.appendRefusedBy(b, i, res)
	}
	if len(res.Bans) > 0 {
		b = d.appendBans(b, i, res)
	}
	b = appendField(b, "retry_after_ms", res.RetryAfter)
	if d.Tag(i) != tagChecks {
		b = appendTime(b, res, 0)
	}
	return appendSource(b, res)
}

func (d *decoder) appendChecks(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `,"checks":[`...)
	for j := range res.Checks {
		c := &res.Checks[j]
		if j > 0 {
			b = append(b, ',')
		}
		b = appendKey(b, d.Ops[i].Checks[j].Key)
		b = append(b, `,"allowed":`...)
		b = strconv.AppendBool(b, !c.Refused)
		b = d.appendLimits(b, i, j, res)
		b = appendField(b, "retry_after_ms", c.RetryAfter)
		b = append(appendTime(b, res, j), '}')
	}
	return append(b, ']')
}

func (d *decoder) appendLimits(b []byte, i, j int, res *twotier.Result) []byte {
	b = append(b, `,"limits":[`...)
	limits := res.Checks[j].Limits
	for k := range limits {
		l := &limits[k]
		most, refused := l.Max, l.Refused
		var r *ask.RuledLimit
		if d.HasRules() {
			r = d.RuleOf(i, j, k)
		}
		if r != nil {
			if r.Rule.State == twotier.RuleOff {
				continue
			}
			most, refused = r.Limit().Max, r.Origin().Refuses(l, res, d.Ops[i].Checks[j].N)
		}
		b = d.appendWindow(b, i, j, k)
		b = appendField(b, "max", most)
		b = appendField(b, "count", l.Count)
		b = appendField(b, "remaining", max(0, most-l.Count))
		if l.Hi > l.Count && most == l.Max {
			b = appendField(b, "lent", l.Hi-l.Count)
		}
		if refused {
			b = append(b, `,"refused":true`...)
		}
		if r != nil {
			b = appendRule(b, r.Rule)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendRefusedBy appends the paths of the limits that refused.
func (d *decoder) appendRefusedBy(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `,"refused_by":[`...)
	for j := range res.Checks {
		for k := range res.Checks[j].Limits {
			if res.Checks[j].Limits[k].Refused {
				b = append(appendComma(b), '"')
				b = append(d.appendPath(b, i, j, k), '"')
			}
		}
		for k := range res.Bans {
			if ban := &res.Bans[k]; ban.Check == j && !ban.Started {
				b = append(appendComma(b), '"')
				b = d.appendCheckPath(b, i, j)
				b = append(append(b, ban.Rule...), `/ban"`...)
			}
		}
	}
	return append(b, ']')
}

// appendComma appends a comma unless a list has just begun.
func appendComma(b []byte) []byte {
	if b[len(b)-1] == '[' {
		return b
	}
	return append(b, ',')
}

// appendBans appends the active bans: the rule, the key, the end, and whether this refusal started
// the ban.
func (d *decoder) appendBans(b []byte, i int, res *twotier.Result) []byte {
	b = append(b, `,"bans":[`...)
	for k := range res.Bans {
		ban := &res.Bans[k]
		b = append(append(appendComma(b), `{"rule":"`...), ban.Rule...)
		b = appendString(append(b, `","key":`...), d.Ops[i].Checks[ban.Check].Key)
		b = appendField(b, "until", ban.Until)
		if ban.Started {
			b = append(b, `,"started":true`...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendCheckPath appends the path of a check, if the request spelled it in a list.
func (d *decoder) appendCheckPath(b []byte, i, j int) []byte {
	if d.Tag(i) == tagChecks {
		b = append(b, "checks["...)
		b = strconv.AppendInt(b, int64(j), 10)
		b = append(b, "]."...)
	}
	return b
}

// appendPath appends the path of a limit as the request spelled it or, for a rule's limit, the name
// of the policy.
func (d *decoder) appendPath(b []byte, i, j, k int) []byte {
	b = d.appendCheckPath(b, i, j)
	if r := d.RuleOf(i, j, k); r != nil {
		return append(b, r.Policy()...)
	}
	b = append(b, "limits["...)
	b = strconv.AppendInt(b, int64(k-d.RuledBefore(i, j, k)), 10)
	return append(b, ']')
}

func itoa(i int) string { return strconv.Itoa(i) }

// text is a type that can be appended as a JSON string.
type text interface{ ~string | ~[]byte }

// appendString appends s as a JSON string. Like encoding/json it replaces invalid UTF-8 with
// U+FFFD.
func appendString[T text](b []byte, s T) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// appendField appends ,"name":v; the name must not need escaping.
func appendField(b []byte, name string, v int64) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return strconv.AppendInt(b, v, 10)
}
