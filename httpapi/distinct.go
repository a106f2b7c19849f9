package httpapi

import (
	"context"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
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
func (s *Server) addDistinct(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	deny429, p := parseDenyQuery(ctx)
	if p != nil {
		return p
	}
	var v codec.ValueOp
	if p = x.DecodeDistinct(ctx.PostBody(), &v); p == nil {
		p = s.answerDistinct(ctx, x, &v)
	}
	if p == nil && deny429 && !v.Res.Allowed {
		sendRefusal(ctx, fasthttp.StatusTooManyRequests, v.Res.RetryAfter)
	}
	return p
}

// countDistinct counts values.
func (s *Server) countDistinct(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	var v codec.ValueOp
	p := parseDistinctQuery(ctx, &x.Decoder, &v)
	if p == nil {
		p = wire.FromFailure(ask.CheckGrant(x.Grant, twotier.RoleRead, v.Op.NS))
	}
	if p != nil {
		return p
	}
	return s.answerDistinct(ctx, x, &v)
}

// answerDistinct executes and answers an operation on values.
func (s *Server) answerDistinct(ctx *fasthttp.RequestCtx, x *requestState,
	v *codec.ValueOp) *wire.Problem {
	if x.traced.of != nil {
		x.annotateSpan(v.Op.NS, 1)
	}
	if err := s.opts.Distincter.Distinct(x.context, &v.Op, v.Add, &v.Res); err != nil {
		return s.problemOf(err, len(v.Add) > 0)
	}
	s.verdicts.CountValues(&x.arrival, &v.Values, &v.Res)
	setRefusalField(ctx, v.Refusal)
	x.out = v.AppendAnswer(x.out)
	return nil
}

// parseDistinctQuery reads the query of a count.
func parseDistinctQuery(ctx *fasthttp.RequestCtx, d *codec.Decoder,
	into *codec.ValueOp) *wire.Problem {
	t, p := parseWindowsQuery(ctx, d, "distinct has key, ns, window and at")
	switch {
	case p != nil:
		return p
	case t.check.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case d.LimitCount() == 0:
		return wire.FieldProblem("window", "missing; "+request.WantWindow)
	}
	into.Op.NS, into.Op.Key, into.Op.TS = t.check.NS, t.check.Key, t.at
	d.MoveWindows(into)
	return d.ReserveValuesMemory(&into.Values)
}
