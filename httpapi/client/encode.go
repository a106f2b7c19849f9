package client

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendText appends a string as JSON. It must be valid UTF-8.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// appendWindow appends a duration in the largest unit that divides it evenly.
func appendWindow(b []byte, d time.Duration) []byte {
	for _, u := range [...]struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"},
		{time.Nanosecond, "ns"}} {
		if d%u.unit == 0 {
			return append(strconv.AppendInt(b, int64(d/u.unit), 10), u.name...)
		}
	}
	return b
}

// appendWindows appends the elements of a list of durations.
func appendWindows(b []byte, list []time.Duration) []byte {
	for i, w := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendWindow(append(b, '"'), w), '"')
	}
	return b
}

func appendNumber(b []byte, name string, n int64) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, n, 10)
}

// appendKey appends the members ns, key, n and limits, each after a comma. At the start of an
// object the caller replaces the first comma.
func appendKey(b []byte, ns, key string, n int64, limits []Limit) ([]byte, error) {
	if !utf8.ValidString(ns) || !utf8.ValidString(key) {
		// One such key would make the whole batch invalid JSON.
		return b, fmt.Errorf("%w: the key or its namespace is not UTF-8", ErrInvalid)
	}
	b = appendText(append(b, `,"key":`...), key)
	if ns != "" {
		b = appendText(append(b, `,"ns":`...), ns)
	}
	if n != 0 {
		b = appendNumber(b, "n", n)
	}
	return appendLimits(b, "limits", limits, 0)
}

// appendLimits appends the member of that name after a comma, if there are any limits, with a limit
// on open holds if that is positive.
func appendLimits(b []byte, name string, limits []Limit, concurrent int64) ([]byte, error) {
	if len(limits) == 0 && concurrent <= 0 {
		return b, nil
	}
	b = append(append(append(b, `,"`...), name...), `":[`...)
	for i, l := range limits {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case l.Period == "":
			b = append(appendWindow(append(b, `{"window":"`...), l.Window), '"')
		case l.Window != 0 || !utf8.ValidString(l.Period):
			return b, fmt.Errorf("%w: %s[%d]: want either Window or Period", ErrInvalid, name, i)
		default:
			b = appendText(append(b, `{"window":`...), l.Period)
		}
		b = append(appendNumber(b, "max", l.Max), '}')
	}
	if concurrent > 0 {
		if len(limits) > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, `{"concurrent":`...), concurrent, 10), '}')
	}
	return append(b, ']'), nil
}

// appendRules appends the member rules after a comma, if there are any.
func appendRules(b []byte, rules []string) ([]byte, error) {
	return appendTexts(b, "rules", rules, func(int) string { return "the name of a rule" })
}

// appendValues appends the member values after a comma, if there are any.
func appendValues(b []byte, values []string) ([]byte, error) {
	return appendTexts(b, "values", values, func(i int) string {
		return fmt.Sprintf("Values[%d]", i)
	})
}

// appendTexts appends a member with texts after a comma, if there are any. nameOf names one of them
// in an error.
func appendTexts(b []byte, name string, texts []string, nameOf func(i int) string) ([]byte, error) {
	if len(texts) == 0 {
		return b, nil
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	for i, text := range texts {
		if !utf8.ValidString(text) {
			return b, fmt.Errorf("%w: %s is not UTF-8", ErrInvalid, nameOf(i))
		}
		b = appendText(append(b, "[,"[min(i, 1)]), text)
	}
	return append(b, ']'), nil
}

// append appends the members of a check, each after a comma.
func (c *Check) append(b []byte) ([]byte, error) {
	if c.Peek && c.N != 0 {
		return b, fmt.Errorf("%w: want either Peek or N", ErrInvalid)
	}
	b, err := appendKey(b, c.Namespace, c.Key, c.N, nil)
	if err != nil {
		return b, err
	}
	if b, err = appendLimits(b, "limits", c.Limits, c.Concurrent); err != nil {
		return b, err
	}
	if b, err = appendValues(b, c.Values); err != nil {
		return b, err
	}
	if b, err = appendLimits(b, "value_limits", c.ValueLimits, 0); err != nil {
		return b, err
	}
	if c.Peek {
		b = appendNumber(b, "n", 0)
	}
	return appendRules(b, c.Rules)
}

// empty reports whether no field of the check is set.
func (c *Check) empty() bool {
	return c.Namespace == "" && c.Key == "" && c.N == 0 && !c.Peek && c.Concurrent == 0 &&
		len(c.Limits)+len(c.Rules)+len(c.Values)+len(c.ValueLimits) == 0
}

// hasOnlyDefaultRules reports whether only default rules judge the check.
func (c *Check) hasOnlyDefaultRules() bool {
	return len(c.Limits)+len(c.Rules)+len(c.ValueLimits) == 0 && c.Concurrent == 0
}

// defaultCheckCount returns the number of checks that only default rules judge.
func (r *AcquireRequest) defaultCheckCount() (n int) {
	for i := range r.Checks {
		if r.Checks[i].hasOnlyDefaultRules() {
			n++
		}
	}
	if len(r.Checks) == 0 && r.Check.hasOnlyDefaultRules() {
		n++
	}
	return n
}

// appendWhen appends the members ts or at, and ack.
func appendWhen(b []byte, name string, at time.Time, ack Ack) []byte {
	if !at.IsZero() {
		b = appendNumber(b, name, at.UnixMilli())
	}
	if ack != AckDefault {
		b = appendText(append(b, `,"ack":`...), string(ack))
	}
	return b
}

// errLong is the error of an operation that is longer than any that a server accepts; a batch with
// it would be refused as well.
var errLong = fmt.Errorf("%w: longer than any operation can be", ErrInvalid)

func (r *AddRequest) append(b []byte) ([]byte, error) {
	b, err := appendKey(append(b, `{"op":"add"`...), r.Namespace, r.Key, r.N, r.Limits)
	if err == nil {
		b, err = appendRules(b, r.Rules)
	}
	return append(appendWhen(b, "ts", r.At, r.Ack), '}'), err
}

func (r *CountRequest) append(b []byte) ([]byte, error) {
	b, err := appendKey(append(b, `{"op":"count"`...), r.Namespace, r.Key, 0, nil)
	b = appendWindows(append(b, `,"window":[`...), r.Windows)
	for i, p := range r.Periods {
		if !utf8.ValidString(p) {
			return b, fmt.Errorf("%w: Periods[%d] is not UTF-8", ErrInvalid, i)
		}
		if i+len(r.Windows) > 0 {
			b = append(b, ',')
		}
		b = appendText(b, p)
	}
	return append(appendWhen(append(b, ']'), "at", r.At, AckDefault), '}'), err
}

func (r *AcquireRequest) append(b []byte) (_ []byte, err error) {
	b = append(b, `{"op":"acquire"`...)
	switch {
	case len(r.Checks) == 0:
		b, err = r.Check.append(b)
	case !r.empty():
		return b, fmt.Errorf("%w: want either Check or Checks", ErrInvalid)
	default:
		b = append(b, `,"checks":[`...)
		for i := range r.Checks {
			if i > 0 {
				b = append(b, ',')
			}
			at := len(b)
			if b, err = r.Checks[i].append(b); err != nil {
				return b, err
			}
			b[at] = '{'
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	for _, o := range r.booleans() {
		if o.set {
			b = append(append(append(b, `,"`...), o.name...), `":true`...)
		}
	}
	if r.Hold > 0 {
		b = append(appendWindow(append(b, `,"hold":"`...), r.Hold), '"')
	}
	if r.Release {
		b = append(b, `,"on_expiry":"release"`...)
	}
	return append(appendWhen(b, "ts", r.At, r.Ack), '}'), err
}
