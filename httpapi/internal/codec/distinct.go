package codec

import (
	"fmt"
	"slices"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// DecodeDistinct reads {"ns","key","values","ts","ack","limits","rules","window"}.
func (d *Decoder) DecodeDistinct(body []byte) *wire.Problem {
	d.Reset(body)
	p := d.EndBody(d.readDistinct(fields.OfDistinct, distinctHas))
	if p == nil {
		d.Link()
	}
	return p
}

// readDistinct reads an operation on values that may have these fields: one that adds values or, in
// a batch, one that only counts.
func (d *Decoder) readDistinct(allowed fields.Set, has string) *wire.Problem {
	d.BeginOp()
	var o draft
	const want = "an object with key and values"
	p := d.readFields(want, &o.seen, allowed, has, func(f fields.Set) *wire.Problem {
		own := d.LimitCount()
		p := d.readOpValue(&o, f)
		if f == fields.Window {
			d.MoveWindows(own)
		}
		return p
	})
	if p != nil {
		return p
	}
	adds := len(d.ValuesInProgress().Add) > 0
	adding := o.seen & (fields.TS | fields.Ack | fields.Limits | fields.Rules)
	query := o.seen&(fields.Op|fields.Values) == fields.Op
	switch {
	case o.check.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case !query && !adds:
		return wire.FieldProblem("values", "missing; want at least one value")
	case !query && o.seen&fields.At != 0:
		return wire.FieldProblem("at", "is for counting; values that are added have ts")
	case query && adding != 0:
		return wire.FieldProblem(adding.Name(), "is for values that are added; want values")
	}
	return d.EndDistinctOp(&o.op, &o.check)
}

// EndDistinctOp adds the operation on values that was read.
func (d *Decoder) EndDistinctOp(op *twotier.Op, c *twotier.Check) *wire.Problem {
	if f := d.EndDistinct(op, c, TagDistinct); f != nil {
		return wire.FromFailure(f)
	}
	if p := d.reserveValuesMemory(d.ValuesInProgress()); p != nil {
		return p
	}
	return d.ReserveMemory(op.Kind)
}

// readValues reads "values".
func (d *Decoder) readValues(into *[][]byte) *wire.Problem {
	return d.ReadList("a list of values", request.MaxValues, "values", func(int) *wire.Problem {
		v, p := d.ReadText()
		if p == nil && (len(v) == 0 || len(v) > request.MaxValueBytes) {
			p = wire.FieldProblem("", fmt.Sprintf("want 1 to %d bytes", request.MaxValueBytes))
		}
		*into = append(*into, v)
		return p
	})
}

// Upper bounds of the memory, in bytes, for an operation on values, for each value, and for each
// limit or window, whose rule is named twice in an answer.
const (
	costValueOp    = 3*384/2 + answerOp + answerRefusal
	costValue      = 64
	answerCounted  = answerLimit + 2*answerNamed
	costValueLimit = 3*160/2 + answerCounted
)

// reserveValuesMemory reserves the memory that values use until their operation is answered.
func (d *Decoder) reserveValuesMemory(v *verdicts.Values) *wire.Problem {
	d.Answers += answerOp + answerRefusal + len(v.Limits)*answerCounted + escaped*len(v.Key)
	return d.reserve(costValueOp + len(v.Add)*costValue + len(v.Limits)*costValueLimit +
		escaped*len(v.Key))
}

// appendDistinct appends the answer to operation i, which is about values alone.
func (e Encoder) appendDistinct(b []byte, i int, res *twotier.Result) []byte {
	b = append(wire.AppendKey(b, e.Ops[i].Checks[0].Key), ',')
	v, judged := e.ValuesOf(i, 0, res)
	if v == nil { // another node's result may be short
		v, judged = new(verdicts.Values), new(twotier.CheckResult)
	}
	b = appendValueCounts(b, v, judged)
	if e.Ops[i].Kind != twotier.Count {
		b = strconv.AppendBool(append(b, `,"over":`...), !res.Allowed)
		if !res.Allowed {
			b = append(appendNames(append(b, `,"refused_by":[`...), v.RefusedBy(judged, "limits")), ']')
			b = wire.AppendField(b, "retry_after_ms", res.RetryAfter)
			b = appendRefusal(b, e.RefusalOf(i))
		}
	}
	if near := v.Near(judged); len(near) > 0 {
		b = append(appendNames(append(b, `,"near":[`...), near), ']')
	}
	if v.Ruled {
		b = wire.AppendField(b, "rules_version", v.Version)
	}
	b = strconv.AppendBool(append(appendSource(b, res), `,"degraded":`...), res.Degraded)
	return append(b, '}')
}

// appendNames appends a list of names.
func appendNames(b []byte, names []string) []byte {
	for _, name := range names {
		b = wire.AppendString(wire.AppendComma(b), name)
	}
	return b
}

// appendValueCounts appends the "counts" of values.
func appendValueCounts(b []byte, v *verdicts.Values, judged *twotier.CheckResult) []byte {
	b = append(b, `"counts":[`...)
	for k := range judged.Limits[:min(len(judged.Limits), len(v.Limits))] {
		l := &judged.Limits[k]
		b = append(wire.AppendComma(b), `{"window":"`...)
		b = append(append(b, v.Texts[k]...), '"')
		if k < v.Judging() {
			b = wire.AppendField(b, "max", l.Max)
		}
		b = wire.AppendField(b, "count", l.Count)
		b = wire.AppendField(b, "at_least", l.Lo)
		b = wire.AppendField(b, "at_most", l.Hi)
		b = strconv.AppendFloat(append(b, `,"error":`...), l.Error, 'g', 3, 64)
		if l.Refused {
			b = append(b, `,"refused":true`...)
		}
		if r := v.Limit(k); r != nil {
			b = appendRule(b, r.Rule)
		} else if slices.Contains(v.Shadow, k) {
			b = append(b, `,"shadow":true`...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendRule appends the fields that name a limit's rule. The rule of a request's limits in shadow
// has no name.
func appendRule(b []byte, r *twotier.Rule) []byte {
	if r.Name != "" {
		b = append(b, `,"rule":"`...)
		b = append(append(b, r.Name...), '"') // a name needs no escaping
	}
	if r.State == twotier.RuleShadow {
		b = append(b, `,"shadow":true`...)
	}
	return b
}
