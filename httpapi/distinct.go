package httpapi

import (
	"context"
	"slices"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/request"
)

// Distincter counts distinct values. Errors are the same as for [Service].
type Distincter interface {
	ask.Distincter
	// DistinctAll executes several operations, in order for each key, and sets the error of each.
	DistinctAll(ctx context.Context, calls []distinct.Call)
}

// addDistinct adds values. It answers 200 whatever the decision, unless the query has deny=429.
func (s *Server) addDistinct(ctx *fasthttp.RequestCtx) *problem {
	deny429, p := denyQuery(ctx)
	if p != nil {
		return p
	}
	x := s.begin(ctx)
	var v valueOp
	if p = x.distinctBody(ctx.PostBody(), &v); p == nil {
		p = s.answerDistinct(ctx, x, &v)
	}
	if p == nil {
		s.verdicts.CountValues(&x.arrival, &v.Values, &v.res)
		if deny429 && !v.res.Allowed {
			deny(ctx, fasthttp.StatusTooManyRequests, v.res.RetryAfter)
		}
	}
	s.finish(x)
	return p
}

// countDistinct counts values.
func (s *Server) countDistinct(ctx *fasthttp.RequestCtx) *problem {
	x := s.begin(ctx)
	var v valueOp
	p := x.distinctQuery(ctx, &v)
	if p == nil {
		p = problemFrom(ask.Allow(x.Grant, twotier.RoleRead, v.Op.NS))
	}
	if p == nil {
		p = s.answerDistinct(ctx, x, &v)
	}
	s.finish(x)
	return p
}

// answerDistinct executes and answers an operation on values.
func (s *Server) answerDistinct(ctx *fasthttp.RequestCtx, x *requestState, v *valueOp) *problem {
	if x.traced.of != nil {
		x.describe(v.Op.NS, 1)
	}
	if err := s.opts.Distincter.Distinct(x.context, &v.Op, v.Add, &v.res); err != nil {
		return s.problemOf(err, len(v.Add) > 0)
	}
	x.out = v.append(x.out)
	x.answer(ctx)
	return nil
}

// distinctQuery reads the query of a count.
func (d *decoder) distinctQuery(ctx *fasthttp.RequestCtx, into *valueOp) *problem {
	d.reset(nil)
	d.BeginOp()
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
	case d.LimitCount() == 0:
		return refused("window", "missing; "+request.WantWindow)
	}
	into.Op.NS, into.Op.Key, into.Op.TS = t.check.NS, t.check.Key, t.at
	d.moveWindows(into)
	return d.accountValues(into)
}

// append appends the answer to an operation on values.
func (v *valueOp) append(b []byte) []byte {
	res := &v.res
	b = append(appendKey(b, v.Op.Key), `,"counts":[`...)
	for i := range res.Counts {
		c := &res.Counts[i]
		b = append(appendComma(b), `{"window":"`...)
		b = append(append(b, v.text(i)...), '"')
		if i < len(v.Op.Limits) {
			b = appendField(b, "max", v.Op.Limits[i].Max)
		}
		b = appendField(b, "count", c.Values)
		b = strconv.AppendFloat(append(b, `,"error":`...), c.Error, 'f', -1, 64)
		b = appendField(b, "bucket_ms", c.BucketMS)
		if slices.Contains(res.Over, i) {
			b = append(b, `,"refused":true`...)
		}
		if r, _ := v.Limit(i); r != nil {
			b = appendRule(b, r)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if len(v.Add) > 0 {
		b = strconv.AppendBool(append(b, `,"over":`...), !res.Allowed)
	}
	if len(v.Add) > 0 && !res.Allowed {
		b = append(b, `,"refused_by":[`...)
		for _, name := range v.RefusedBy(res) {
			b = appendString(appendComma(b), name)
		}
		b = appendField(append(b, ']'), "retry_after_ms", res.RetryAfter)
	}
	if v.Ruled {
		b = appendField(b, "rules_version", v.Version)
	}
	b = append(append(b, `,"source":"`...), res.Source...)
	b = strconv.AppendBool(append(b, `","degraded":`...), res.Degraded)
	return append(b, '}')
}

// appendRule appends the fields that name a limit's rule.
func appendRule(b []byte, r *twotier.Rule) []byte {
	b = append(b, `,"rule":"`...)
	b = append(append(b, r.Name...), '"') // a name needs no escaping
	if r.State == twotier.RuleShadow {
		b = append(b, `,"shadow":true`...)
	}
	return b
}
