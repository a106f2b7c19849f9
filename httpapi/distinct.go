package httpapi

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/httpapi/token"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/syncer"
)

// Distincter counts distinct values. Errors are those of [Service].
type Distincter interface {
	// Distinct adds values to a key, unless a limit forbids it, and counts how many different ones
	// there are. Without values it only counts.
	Distinct(ctx context.Context, op *distinct.Op, values [][]byte, res *distinct.Result) error
}

// distinctBody is the body of a request that adds values.
type distinctBody struct {
	op     distinct.Op
	values [][]byte
	start  int // where its windows begin in the decoder's limits; its limits are before
}

// addDistinct adds values. It answers 200 whatever the decision, unless the query says deny=429.
func (s *Server) addDistinct(ctx *fasthttp.RequestCtx) *problem {
	deny429, p := denyQuery(ctx)
	if p != nil {
		return p
	}
	x := s.begin(ctx)
	var body distinctBody
	var res distinct.Result
	if p = x.distinctBody(ctx.PostBody(), &body); p == nil {
		if err := s.opts.Distincter.Distinct(x.context, &body.op, body.values, &res); err != nil {
			p = s.problemOf(err, true)
		}
	}
	if p == nil {
		x.out = x.appendDistinct(x.out, &body.op, &res, true)
		x.answer(ctx)
		s.countDistinctVerdicts(x, &body, &res)
		if deny429 && !res.Allowed {
			ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
		}
	}
	s.finish(x)
	return p
}

// countDistinct counts values.
func (s *Server) countDistinct(ctx *fasthttp.RequestCtx) *problem {
	x := s.begin(ctx)
	var op distinct.Op
	p := x.distinctQuery(ctx, &op)
	if p == nil {
		p = forbidden(x.grant, token.Read, op.NS)
	}
	if p == nil {
		var res distinct.Result
		if err := s.opts.Distincter.Distinct(x.context, &op, nil, &res); err != nil {
			p = s.problemOf(err, false)
		} else {
			x.out = x.appendDistinct(x.out, &op, &res, false)
			x.answer(ctx)
		}
	}
	s.finish(x)
	return p
}

// distinctQuery reads the query of a count.
func (d *decoder) distinctQuery(ctx *fasthttp.RequestCtx, op *distinct.Op) *problem {
	d.reset(nil)
	var t target
	p := eachArg(ctx, func(name, value []byte) *problem {
		f, p := t.arg(name, value, fieldNS|fieldKey|fieldWindow|fieldAt,
			"distinct has key, ns, window and at")
		if p == nil && f == fieldWindow {
			if p = d.windowsOf(value); p != nil {
				p = p.in("window")
			}
		}
		return p
	})
	switch {
	case p != nil:
		return p
	case t.check.Key == nil:
		return refused("key", "missing; "+request.WantKey)
	case len(d.limits) == 0:
		return refused("window", "missing; "+request.WantWindow)
	}
	op.NS, op.Key, op.TS = t.check.NS, t.check.Key, t.at
	d.distinctWindows(op, 0)
	return d.spend(len(d.limits) * costLimit)
}

// distinctBody reads {"ns","key","values","ts","ack","limits","rules","window"}.
func (d *decoder) distinctBody(body []byte, into *distinctBody) *problem {
	d.reset(body)
	p := d.distinctObject(into)
	if p == nil {
		p = d.end()
	}
	if p != nil {
		return d.malformedFirst(p)
	}
	if p := forbidden(d.grant, token.Count, into.op.NS); p != nil {
		return p
	}
	d.distinctWindows(&into.op, into.start)
	const costValue = 64
	return d.spend(len(into.values)*costValue + len(d.limits)*costLimit)
}

// distinctWindows makes limits of the first ones that were read, and windows of the others.
func (d *decoder) distinctWindows(op *distinct.Op, start int) {
	op.Limits = d.limits[:start]
	for _, l := range d.limits[start:] {
		op.Windows = append(op.Windows, l.Window)
	}
}

// ofDistinct is the set of fields of a request that adds values.
const ofDistinct = fieldNS | fieldKey | fieldValues | fieldTS | fieldAck | fieldLimits |
	fieldRules | fieldWindow

func (d *decoder) distinctObject(into *distinctBody) *problem {
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
		const has = "distinct has ns, key, values, ts, ack, limits, rules and window"
		if p := once(&o.seen, f, ofDistinct, name, has); p != nil {
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
	if into.start = len(d.limits); windows > 0 {
		end := d.pos
		d.pos = windows
		if p := d.windows(); p != nil {
			return p.in("window")
		}
		d.pos = end
	}
	return nil
}

// finishDistinct makes the checks that are only possible at the end, and adds what rules have.
func (d *decoder) finishDistinct(o *draft, into *distinctBody) *problem {
	switch {
	case o.check.Key == nil:
		return refused("key", "missing; "+request.WantKey)
	case len(into.values) == 0:
		return refused("values", "missing; want at least one value")
	case o.op.Ack > syncer.AckStore:
		return refused("ack", `distinct values wait for "memory" or "redis"`)
	}
	op := &into.op
	op.TS, op.Ack = o.op.TS, o.op.Ack
	if p := d.distinctRules(&o.check, op); p != nil {
		return p
	}
	op.NS, op.Key = o.check.NS, o.check.Key
	return nil
}

// valueList reads "values".
func (d *decoder) valueList(into *distinctBody) *problem {
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
		into.values = append(into.values, v)
	}
}

// appendDistinct appends the answer to an operation.
func (d *decoder) appendDistinct(b []byte, op *distinct.Op, res *distinct.Result,
	adds bool) []byte {
	b = append(appendKey(b, op.Key), `,"counts":[`...)
	for i := range res.Counts {
		c := &res.Counts[i]
		b = append(appendComma(b), `{"window":"`...)
		b = append(append(b, d.texts[i]...), '"')
		if i < len(op.Limits) {
			b = appendField(b, "max", op.Limits[i].Max)
		}
		b = appendField(b, "count", c.Values)
		b = strconv.AppendFloat(append(b, `,"error":`...), c.Error, 'f', -1, 64)
		b = appendField(b, "bucket_ms", c.BucketMS)
		if slices.Contains(res.Over, i) {
			b = append(b, `,"refused":true`...)
		}
		b = append(d.namedAt(i).append(b), '}')
	}
	b = append(b, ']')
	if adds {
		b = strconv.AppendBool(append(b, `,"over":`...), !res.Allowed)
		b = d.appendDistinctRefused(b, op, res)
	}
	if len(d.naming) > 0 {
		b = appendField(b, "rules_version", d.inForce.Version())
	}
	b = append(append(b, `,"source":"`...), res.Source...)
	b = strconv.AppendBool(append(b, `","degraded":`...), res.Degraded)
	return append(b, '}')
}

// appendDistinctRefused appends which limits refused, if any did.
func (d *decoder) appendDistinctRefused(b []byte, op *distinct.Op, res *distinct.Result) []byte {
	if res.Allowed {
		return b
	}
	b = append(b, `,"refused_by":[`...)
	for _, i := range res.Over {
		path := "limits[" + itoa(i) + "]"
		if r := d.namedAt(i); r != nil {
			path = r.policy()
		}
		if !slices.Contains(op.Shadow, i) {
			b = appendString(appendComma(b), path)
		}
	}
	return append(b, ']')
}
