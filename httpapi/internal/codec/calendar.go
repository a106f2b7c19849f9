package codec

import (
	"cmp"
	"errors"
	"math"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
)

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
