package httpapi

import (
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// valueOp is an operation on distinct values with its outcome.
type valueOp struct {
	verdicts.Values
	// texts are windows as the request spelled them: first of the request's own limits, then of its
	// "window".
	texts [][]byte
	index int // its position in a batch
	res   distinct.Result
	err   error
}

// text returns the window of count i as the request, or a rule, spelled it.
func (v *valueOp) text(i int) []byte {
	own := len(v.texts) - len(v.Op.Windows)
	switch r, limit := v.Limit(i); {
	case r != nil:
		return []byte(limit.Text)
	case i >= len(v.Op.Limits):
		return v.texts[own+i-len(v.Op.Limits)]
	}
	return v.texts[i]
}

// The fields of a request that adds values, and of an operation on values in a batch.
const (
	ofDistinct = fieldNS | fieldKey | fieldValues | fieldTS | fieldAck | fieldLimits |
		fieldRules | fieldWindow
	ofDistinctOp = ofDistinct | fieldOp | fieldAt
)

// distinctBody reads {"ns","key","values","ts","ack","limits","rules","window"}.
func (d *decoder) distinctBody(body []byte, into *valueOp) *problem {
	d.reset(body)
	p := d.distinctObject(into, ofDistinct,
		"distinct has ns, key, values, ts, ack, limits, rules and window")
	if p == nil {
		p = d.end()
	}
	if p != nil {
		return d.malformedFirst(p)
	}
	return nil
}

// distinctOp reads an operation of a batch: a body that adds values, or one that only counts.
func (d *decoder) distinctOp() *problem {
	var v valueOp
	p := d.distinctObject(&v, ofDistinctOp,
		"distinct has ns, key, values, ts, ack, limits, rules, window and at")
	if p == nil {
		d.values = append(d.values, v)
	}
	return p
}

// distinctObject reads an operation on values that may have these fields.
func (d *decoder) distinctObject(into *valueOp, allowed fields, has string) *problem {
	d.BeginOp()
	if p := d.enter('{', "an object with key and values"); p != nil {
		return p
	}
	var o draft
	var windows int // where the text of the windows begins, 0 if there is none
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fieldOf(name)
		if p := once(&o.seen, f, allowed, name, has); p != nil {
			return p
		}
		switch f {
		case fieldValues:
			p = d.valueList(into)
		case fieldWindow:
			// They come after the limits, wherever they are in the body.
			if d.peek(); d.pos < len(d.src) {
				windows = d.pos
			}
			p = d.skip(0)
		default:
			p = d.opValue(&o, f)
		}
		if p != nil {
			return p.in(string(name))
		}
	}
	if p := d.finishDistinct(&o, into); p != nil {
		return p
	}
	if windows > 0 {
		end := d.pos
		d.pos = windows
		if p := d.windows(); p != nil {
			return p.in("window")
		}
		d.pos = end
		d.moveWindows(into)
	}
	if len(into.Add)+len(into.Op.Windows) == 0 {
		return refused("window", "missing; "+request.WantWindow)
	}
	return d.accountValues(into)
}

// finishDistinct makes the checks that need the whole operation, moves the limits to it, and adds
// the limits of rules.
func (d *decoder) finishDistinct(o *draft, into *valueOp) *problem {
	const adding = fieldTS | fieldAck | fieldLimits | fieldRules
	query := o.seen&(fieldOp|fieldValues) == fieldOp
	switch {
	case o.check.Key == nil:
		return refused("key", "missing; "+request.WantKey)
	case !query && len(into.Add) == 0:
		return refused("values", "missing; want at least one value")
	case !query && o.seen&fieldAt != 0:
		return refused("at", "is for counting; values that are added have ts")
	case query && o.seen&adding != 0:
		return refused((o.seen & adding).name(), "is for values that are added; want values")
	case o.op.Ack > twotier.AckStore:
		return refused("ack", `distinct values wait for "memory" or "redis"`)
	}
	into.Op = distinct.Op{NS: o.check.NS, Key: o.check.Key, TS: o.op.TS, Ack: o.op.Ack}
	into.Op.Limits, into.texts = d.MoveLimits()
	if f := d.JudgeValues(&into.Values); f != nil {
		return problemFrom(f)
	}
	need := twotier.RoleCount
	if query {
		need = twotier.RoleRead
	}
	return problemFrom(ask.Allow(d.Grant, need, into.Op.NS))
}

// moveWindows turns the limits that were read last into windows.
func (d *decoder) moveWindows(into *valueOp) {
	limits, texts := d.MoveLimits()
	for _, l := range limits {
		into.Op.Windows = append(into.Op.Windows, l.Window)
	}
	into.texts = append(into.texts, texts...)
}

// valueList reads "values".
func (d *decoder) valueList(into *valueOp) *problem {
	if p := d.enter('[', "a list of values"); p != nil {
		return p
	}
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil || !more {
			return p
		}
		if i == distinct.MaxValues {
			return refused("", fmt.Sprintf("want at most %d values", distinct.MaxValues))
		}
		v, p := d.text()
		if p == nil && (len(v) == 0 || len(v) > distinct.MaxValueBytes) {
			p = refused("", fmt.Sprintf("want 1 to %d bytes", distinct.MaxValueBytes))
		}
		if p != nil {
			return p.in("[" + itoa(i) + "]")
		}
		into.Add = append(into.Add, v)
	}
}

// Upper bounds of the memory, in bytes, for an operation on values, for each value, and for each
// limit or window, whose rule is named twice in an answer.
const (
	costValueOp    = 3*384/2 + answerOp
	costValue      = 64
	answerCounted  = answerLimit + 2*answerNamed
	costValueLimit = 3*160/2 + answerCounted
)

// accountValues reserves the memory that an operation on values uses until it is answered.
func (d *decoder) accountValues(v *valueOp) *problem {
	limits := len(v.Op.Limits) + len(v.Op.Windows)
	d.answers += answerOp + limits*answerCounted + escaped*len(v.Op.Key)
	return d.spend(costValueOp + len(v.Add)*costValue + limits*costValueLimit +
		escaped*len(v.Op.Key))
}
