package codec

import (
	"fmt"
	"slices"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// ValueOp is an operation on distinct values with its outcome.
type ValueOp struct {
	verdicts.Values
	// Res and Err are the outcome.
	Res distinct.Result
	Err error

	index int // its position in a batch
}

// appendValueWindow appends the window of count i as the request, or a rule, spelled it.
func appendValueWindow(b []byte, v *verdicts.Values, i int) []byte {
	own := len(v.Texts) - len(v.Op.Windows)
	switch r, limit := v.Limit(i); {
	case r != nil:
		return append(b, limit.Text...)
	case i >= len(v.Op.Limits):
		return append(b, v.Texts[own+i-len(v.Op.Limits)]...)
	}
	return append(b, v.Texts[i]...)
}

// DecodeDistinct reads {"ns","key","values","ts","ack","limits","rules","window"}.
func (d *Decoder) DecodeDistinct(body []byte, into *ValueOp) *wire.Problem {
	d.Reset(body)
	return d.EndBody(d.readDistinctObject(into, fields.OfDistinct, distinctHas))
}

// readDistinctOp reads an operation of a batch: a body that adds values, or one that only counts.
func (d *Decoder) readDistinctOp() *wire.Problem {
	var v ValueOp
	p := d.readDistinctObject(&v, fields.Op|fields.OfBatchDistinct, batchDistinctHas)
	if p == nil {
		d.Values = append(d.Values, v)
	}
	return p
}

// readDistinctObject reads an operation on values that may have these fields.
func (d *Decoder) readDistinctObject(into *ValueOp, allowed fields.Set, has string) *wire.Problem {
	d.BeginOp()
	var o draft
	var windows int // where the text of the windows begins, 0 if there is none
	const want = "an object with key and values"
	p := d.readFields(want, &o.seen, allowed, has, func(f fields.Set) *wire.Problem {
		switch f {
		case fields.Values:
			return d.readValues(&into.Add)
		case fields.Window:
			// They come after the limits, wherever they are in the body.
			if d.Peek(); d.Pos < len(d.Src) {
				windows = d.Pos
			}
			return d.Skip(0)
		}
		return d.readOpValue(&o, f)
	})
	if p != nil {
		return p
	}
	if p := d.finishDistinct(&o, into); p != nil {
		return p
	}
	if windows > 0 {
		end := d.Pos
		d.Pos = windows
		if p := d.readWindows(); p != nil {
			return p.PrefixField("window")
		}
		d.Pos = end
		d.MoveWindows(into)
	}
	if len(into.Add)+len(into.Op.Windows) == 0 {
		return wire.FieldProblem("window", "missing; "+request.WantWindow)
	}
	return d.ReserveValuesMemory(&into.Values)
}

// finishDistinct makes the checks that need the whole operation, moves the limits to it, and adds
// the limits of rules.
func (d *Decoder) finishDistinct(o *draft, into *ValueOp) *wire.Problem {
	adding := o.seen & (fields.TS | fields.Ack | fields.Limits | fields.Rules)
	query := o.seen&(fields.Op|fields.Values) == fields.Op
	switch {
	case o.check.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case !query && len(into.Add) == 0:
		return wire.FieldProblem("values", "missing; want at least one value")
	case !query && o.seen&fields.At != 0:
		return wire.FieldProblem("at", "is for counting; values that are added have ts")
	case query && adding != 0:
		return wire.FieldProblem(adding.Name(), "is for values that are added; want values")
	}
	into.Op = distinct.Op{NS: o.check.NS, Key: o.check.Key, TS: o.op.TS, Ack: o.op.Ack}
	limits, texts := d.MoveLimits()
	into.Op.Limits, into.Texts = slices.Clone(limits), slices.Clone(texts)
	if f := d.AddValueRuleLimits(&into.Values); f != nil {
		return wire.FromFailure(f)
	}
	need := twotier.RoleCount
	if query {
		need = twotier.RoleRead
	}
	return wire.FromFailure(ask.CheckGrant(d.Grant, need, into.Op.NS))
}

// MoveWindows turns the limits that were read last into windows.
func (d *Decoder) MoveWindows(into *ValueOp) {
	limits, texts := d.MoveLimits()
	for _, l := range limits {
		into.Op.Windows = append(into.Op.Windows, l.Window)
	}
	into.Texts = append(into.Texts, texts...)
}

// readValues reads "values".
func (d *Decoder) readValues(into *[][]byte) *wire.Problem {
	return d.ReadList("a list of values", distinct.MaxValues, "values", func(int) *wire.Problem {
		v, p := d.ReadText()
		if p == nil && (len(v) == 0 || len(v) > distinct.MaxValueBytes) {
			p = wire.FieldProblem("", fmt.Sprintf("want 1 to %d bytes", distinct.MaxValueBytes))
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

// ReserveValuesMemory reserves the memory that values use until their operation is answered.
func (d *Decoder) ReserveValuesMemory(v *verdicts.Values) *wire.Problem {
	limits := len(v.Op.Limits) + len(v.Op.Windows)
	d.Answers += answerOp + answerRefusal + limits*answerCounted + escaped*len(v.Op.Key)
	return d.reserve(costValueOp + len(v.Add)*costValue + limits*costValueLimit +
		escaped*len(v.Op.Key))
}

// AppendAnswer appends the answer to an operation on values.
func (v *ValueOp) AppendAnswer(b []byte) []byte {
	res := &v.Res
	b = appendValueCounts(append(wire.AppendKey(b, v.Op.Key), ','), &v.Values, res)
	if len(v.Add) > 0 {
		b = strconv.AppendBool(append(b, `,"over":`...), !res.Allowed)
	}
	if len(v.Add) > 0 && !res.Allowed {
		b = append(b, `,"refused_by":[`...)
		for _, name := range v.RefusedBy(res, "limits") {
			b = wire.AppendString(wire.AppendComma(b), name)
		}
		b = wire.AppendField(append(b, ']'), "retry_after_ms", res.RetryAfter)
		b = appendRefusal(b, v.Refusal)
	}
	if near := v.Near(res); len(near) > 0 {
		b = append(b, `,"near":[`...)
		for _, name := range near {
			b = wire.AppendString(wire.AppendComma(b), name)
		}
		b = append(b, ']')
	}
	if v.Ruled {
		b = wire.AppendField(b, "rules_version", v.Version)
	}
	b = append(append(b, `,"source":"`...), res.Source...)
	b = strconv.AppendBool(append(b, `","degraded":`...), res.Degraded)
	return append(b, '}')
}

// appendValueCounts appends the "counts" of values.
func appendValueCounts(b []byte, v *verdicts.Values, res *distinct.Result) []byte {
	b = append(b, `"counts":[`...)
	for i := range res.Counts {
		c := &res.Counts[i]
		b = append(wire.AppendComma(b), `{"window":"`...)
		b = append(appendValueWindow(b, v, i), '"')
		if i < len(v.Op.Limits) {
			b = wire.AppendField(b, "max", v.Op.Limits[i].Max)
		}
		b = wire.AppendField(b, "count", c.Count)
		b = wire.AppendField(b, "at_least", c.Min)
		b = wire.AppendField(b, "at_most", c.Max)
		b = strconv.AppendFloat(append(b, `,"error":`...), c.Error, 'g', 3, 64)
		if slices.Contains(res.Over, i) {
			b = append(b, `,"refused":true`...)
		}
		if r, _ := v.Limit(i); r != nil {
			b = appendRule(b, r)
		} else if slices.Contains(v.Op.Shadow, i) {
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
