package codec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// readChecks reads the "checks" of an acquire.
func (d *Decoder) readChecks() *wire.Problem {
	p := d.ReadList("a list of checks", request.MaxChecks, "checks", d.readCheck)
	if p == nil && d.CheckCount() == 0 {
		p = wire.FieldProblem("", "want at least one check")
	}
	return p
}

// readCheck reads one of the "checks" of an acquire.
func (d *Decoder) readCheck(int) *wire.Problem {
	c, seen := twotier.Check{N: 1}, fields.Set(0)
	d.BeginCheck()
	p := d.readFields("an object", &seen, fields.OfCheck, checkHas,
		func(f fields.Set) *wire.Problem { return d.readCheckValue(&c, f) })
	if p != nil {
		return p
	}
	return d.AddCheck(&c, twotier.Acquire)
}

// readFields reads an object that has some of the allowed fields, and calls read at the value of
// each.
func (d *Decoder) readFields(want string, seen *fields.Set, allowed fields.Set, has string,
	read func(f fields.Set) *wire.Problem) *wire.Problem {
	return d.ReadObject(want, func(name []byte) *wire.Problem {
		f := fields.Named(name)
		if f&allowed&^*seen == 0 {
			return fieldProblem(f, allowed, name, has)
		}
		*seen |= f
		if p := read(f); p != nil {
			return p.PrefixField(string(name))
		}
		return nil
	})
}

// limitFields lists the fields of a limit for error messages.
const limitFields = "a limit has window and max, and a calendar window also zone and anchor; " +
	"or it has concurrent"

// readLimit reads {"window","max"}, and the fields of a calendar window, or {"concurrent"}. A limit
// on values has only the first two.
func (d *Decoder) readLimit(values bool) *wire.Problem {
	want, allowed, has := "an object with window and max", fields.OfLimit, limitFields
	if values {
		want, allowed, has = "an object", fields.OfValueLimit, valueLimitHas
	}
	if p := d.ReadBracket('{', want); p != nil {
		return p
	}
	var l twotier.Limit
	var text []byte
	var of calendarFields
	seen := fields.Set(0)
	for first := true; ; first = false {
		name, p := d.NextMember(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fields.Named(name)
		if f&allowed&^seen == 0 {
			return fieldProblem(f, allowed, name, has)
		}
		seen |= f
		switch f {
		case fields.Window:
			l.Window, l.Period, text, p = d.readWindow(!values)
		case fields.Max, fields.Concurrent:
			l.Max, p = d.readMax()
		default:
			p = d.readCalendarField(&of, f == fields.Zone)
		}
		if p != nil {
			return p.PrefixField(string(name))
		}
	}
	switch missing := fields.OfValueLimit &^ seen; {
	case seen&fields.Concurrent != 0:
		return d.limitLeases(l.Max, seen != fields.Concurrent)
	case missing == 0:
	case values:
		return wire.FieldProblem(missing.Name(), "missing; "+has)
	case missing&fields.Window != 0:
		return wire.FieldProblem("window", "missing; "+request.WantLimitWindow)
	default:
		return wire.FieldProblem("max", "missing; want a whole number")
	}
	return d.endLimit(&l, text, seen, &of, values)
}

// endLimit adds a limit that was read to the check in progress.
func (d *Decoder) endLimit(l *twotier.Limit, text []byte, seen fields.Set, of *calendarFields,
	values bool) *wire.Problem {
	if seen&(fields.Zone|fields.Anchor) != 0 {
		if p := of.apply(l, &text); p != nil {
			return p
		}
	}
	if values {
		d.LimitValues(*l, text)
	} else {
		d.AddLimit(*l, text)
	}
	return nil
}

// readMax reads the maximum of a limit.
func (d *Decoder) readMax() (most int64, p *wire.Problem) {
	if most, p = d.ReadInteger(); p == nil && !fields.Max.Allows(most) {
		p = wire.FieldProblem("", fields.Max.Want())
	}
	return most, p
}

// limitLeases makes the check in progress take a lease, for a limit that may have other fields.
func (d *Decoder) limitLeases(most int64, others bool) *wire.Problem {
	switch {
	case others:
		return wire.FieldProblem("concurrent", "want either concurrent or window and max, not both")
	case !fields.Concurrent.Allows(most):
		return wire.FieldProblem("concurrent", fields.Concurrent.Want())
	}
	d.LimitLeases(most)
	return nil
}

// ReadDuration reads one duration, in milliseconds.
func (d *Decoder) ReadDuration() (ms int64, p *wire.Problem) {
	ms, _, _, p = d.readWindow(false)
	return ms, p
}

// readWindow reads one duration or, if there may be one, a calendar window.
func (d *Decoder) readWindow(periods bool) (ms int64, period *twotier.Period, text []byte,
	p *wire.Problem) {
	want := request.WantWindow
	if periods {
		want = request.WantLimitWindow
	}
	if d.Peek() != '"' {
		return 0, nil, nil, d.UnexpectedProblem(want[len("want "):])
	}
	if text, p = d.Str(); p != nil {
		return 0, nil, nil, p
	}
	var l twotier.Limit
	var wrong string
	if periods {
		l, wrong = request.ParseLimitWindow(text)
	} else {
		l.Window, wrong = request.ParseWindow(text)
	}
	if wrong != "" {
		return 0, nil, nil, wire.FieldProblem("", wrong)
	}
	return l.Window, l.Period, text, nil
}

// readWindows reads the "window" of a count: one or several, separated by commas or as a list.
func (d *Decoder) readWindows() *wire.Problem {
	if d.Peek() != '[' {
		if d.Peek() != '"' {
			return d.UnexpectedProblem(request.WantLimitWindow[len("want "):])
		}
		list, p := d.Str()
		if p != nil {
			return p
		}
		return d.ReadWindowList(list)
	}
	return d.ReadList("", request.MaxWindows, "windows", func(int) *wire.Problem {
		ms, period, text, p := d.readWindow(true)
		if p == nil {
			d.AddLimit(twotier.Limit{Window: ms, Period: period}, text)
		}
		return p
	})
}

// ReadWindowList splits a list of windows at its commas.
func (d *Decoder) ReadWindowList(list []byte) *wire.Problem {
	for i := 0; ; i++ {
		text, rest, more := bytes.Cut(list, []byte{','})
		if i == request.MaxWindows {
			return wire.FieldProblem("", fmt.Sprintf("want at most %d windows", request.MaxWindows))
		}
		l, wrong := request.ParseLimitWindow(text)
		if wrong != "" {
			return wire.FieldProblem("", wrong)
		}
		d.AddLimit(l, text)
		if !more {
			return nil
		}
		list = rest
	}
}

// readRules reads "rules": names, each of which stands for the limits of that rule.
func (d *Decoder) readRules() *wire.Problem {
	const want = "a list of names of rules"
	return d.ReadList(want, ask.MaxRules, "rules", func(int) *wire.Problem {
		name, p := d.ReadText()
		if p != nil {
			return p
		}
		return wire.FromFailure(d.AddNamedRule(name))
	})
}

// appendPeriod appends the start and the end of the period that the answer to check j is about.
func (e Encoder) appendPeriod(b []byte, i, j int, p *twotier.Period, res *twotier.Result) []byte {
	start, end := p.Around(e.timeOf(i, j, res))
	return wire.AppendField(wire.AppendField(b, "start", start), "end", end)
}

// timeOf returns the time of operation i in unix milliseconds: the one in the request, or when
// check j was counted, or else now.
func (e Encoder) timeOf(i, j int, res *twotier.Result) int64 {
	if at := cmp.Or(e.Ops[i].TS, res.Checks[j].TS); at != 0 {
		return at
	}
	return time.Now().UnixMilli()
}

// calendarFields are the fields "zone" and "anchor" of a limit.
type calendarFields struct {
	zone     []byte
	anchor   int64
	anchored bool
}

// readCalendarField reads one of the two fields.
func (d *Decoder) readCalendarField(f *calendarFields, isZone bool) (p *wire.Problem) {
	if isZone {
		f.zone, p = d.ReadText()
		return p
	}
	f.anchored = true
	f.anchor, p = d.ReadInteger()
	return p
}

// apply gives a limit the period that its window, zone and anchor spell. The answer spells it in
// its short form, so there is no text.
func (f *calendarFields) apply(l *twotier.Limit, text *[]byte) *wire.Problem {
	field := "zone"
	if f.zone == nil {
		field = "anchor"
	}
	if l.Period == nil {
		return wire.FieldProblem(field, `is for a calendar window: "hour", "day", "week" or "month"`)
	}
	unit := l.Period.Unit().String()
	if string(*text) != unit {
		return wire.FieldProblem(field, `want it either here or in the window, which is then "`+
			unit+`"`)
	}
	anchor := twotier.DefaultAnchor
	if f.anchored {
		anchor = int(max(-math.MaxInt32, min(f.anchor, math.MaxInt32)))
	}
	period, err := twotier.NewPeriod(unit, string(f.zone), anchor)
	if invalid, ok := errors.AsType[*twotier.InvalidError](err); ok {
		return wire.FieldProblem(invalid.Field, invalid.Detail)
	}
	l.Period, *text = period, nil
	return nil
}

// The fields of what is read, in error messages.
var (
	addHas           = "add has " + fields.OfAdd.List()
	countHas         = "count has " + fields.OfCount.List()
	acquireHas       = "acquire has " + fields.OfAcquire.List()
	distinctHas      = "distinct has " + fields.OfDistinct.List()
	batchDistinctHas = "distinct has " + fields.OfBatchDistinct.List()
	checkHas         = "a check has " + fields.OfCheck.List()
	valueLimitHas    = "a limit on values has " + fields.OfValueLimit.List()
	renewHas         = "renew has " + fields.OfRenew.List()
	resetHas         = "reset has " + fields.OfReset.List()
)

// kindOf parses the value of "op".
func kindOf(b []byte) (twotier.Kind, *wire.Problem) {
	switch string(b) {
	case "add":
		return twotier.Add, nil
	case "count":
		return twotier.Count, nil
	case "acquire":
		return twotier.Acquire, nil
	}
	return 0, wire.FieldProblem("", `want "add", "count", "acquire" or "distinct", `+
		`got "`+request.Clip(b)+`"`)
}

// ackOf parses the value of "ack".
func ackOf(b []byte) (twotier.Ack, *wire.Problem) {
	switch string(b) {
	case "memory":
		return twotier.AckMemory, nil
	case "redis":
		return twotier.AckStore, nil
	case "replica":
		return twotier.AckReplica, nil
	case "disk":
		return twotier.AckDisk, nil
	}
	return 0, wire.FieldProblem("", `want "memory", "redis", "replica" or "disk", `+
		`got "`+request.Clip(b)+`"`)
}

// DecodeKey reads {"ns","key"}.
func (d *Decoder) DecodeKey(body []byte) (c twotier.Check, p *wire.Problem) {
	d.Reset(body)
	seen := fields.Set(0)
	p = d.readFields("an object with key", &seen, fields.OfReset, resetHas,
		func(f fields.Set) *wire.Problem { return d.readCheckValue(&c, f) })
	if p == nil && c.Key == nil {
		p = wire.FieldProblem("key", "missing; "+request.WantKey)
	}
	return c, d.EndBody(p)
}

// ResolveRule returns the rule of that name.
func (d *Decoder) ResolveRule(name []byte) (*twotier.Rule, *wire.Problem) {
	r, f := d.FindRule(name)
	return r, wire.FromFailure(f)
}
