package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/explain"
)

func (s *Server) count(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	if p := parseCountQuery(ctx, &x.Decoder); p != nil {
		return p
	}
	return s.runOnlyOp(x)
}

// countDistinct counts different values.
func (s *Server) countDistinct(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	if p := parseDistinctQuery(ctx, &x.Decoder); p != nil {
		return p
	}
	return s.runOnlyOp(x)
}

func (s *Server) showSeries(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	t, window, p := parseSeriesQuery(ctx)
	if p != nil {
		return p
	}
	if p := wire.FromFailure(ask.CheckGrant(grantOf(ctx), twotier.RoleRead, t.check.NS)); p != nil {
		return p
	}
	bucket, points, err := s.service.Series(x.context, t.check.NS, t.check.Key, window)
	if err != nil {
		return s.problemOfQuery(err)
	}
	x.out = appendSeries(x.out, t.check.Key, bucket, points)
	return nil
}

func appendSeries(b, key []byte, bucketMS int64, points []twotier.Point) []byte {
	b = wire.AppendKey(b, key)
	b = wire.AppendField(b, "bucket_ms", bucketMS)
	b = append(b, `,"points":[`...)
	for i, p := range points {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = strconv.AppendInt(b, p.Start, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, p.Count, 10)
		b = append(b, ']')
	}
	return append(b, "]}"...)
}

func (s *Server) showTop(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	q, p := parseTopQuery(ctx)
	if p != nil {
		return p
	}
	if p := memoryOf(ctx).ReserveKeys(q.n); p != nil {
		return p
	}
	keys, err := s.service.Top(x.context, q.by, q.prefix, q.n, q.window)
	if err != nil {
		return s.problemOfQuery(err)
	}
	x.out = appendTop(x.out, q.text, keys)
	return nil
}

// appendTop appends a list of keys, with the window unless it is empty.
func appendTop(b []byte, window string, keys []twotier.KeyCount) []byte {
	b = append(b, '{')
	if window != "" {
		b = append(wire.AppendString(append(b, `"window":`...), window), ',')
	}
	b = append(b, `"keys":[`...)
	for i := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(append(b, `{"ns":`...), keys[i].NS)
		b = wire.AppendString(append(b, `,"key":`...), keys[i].Key)
		b = append(wire.AppendField(b, "count", keys[i].Count), '}')
	}
	return append(b, "]}"...)
}

func (s *Server) reset(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	c, p := x.DecodeKey(ctx.PostBody())
	if p == nil {
		p = wire.FromFailure(ask.CheckGrant(x.Grant, twotier.RoleAdmin, c.NS))
	}
	if p != nil {
		return p
	}
	if err := s.service.Reset(x.context, c.NS, c.Key); err != nil {
		return s.problemOf(err, true)
	}
	x.out = append(wire.AppendKey(x.out, c.Key), `,"reset":true}`...)
	return nil
}

// sendJSON makes text the body of the response, and keeps it until it is written.
func sendJSON(ctx *fasthttp.RequestCtx, text []byte) *wire.Problem {
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(text)
	return nil
}

// addExplain adds the path of explanations, if the service finds refusals.
func (s *Server) addExplain(routes map[string]route) {
	refusals, ok := s.service.(explain.Refusals)
	if !ok {
		return
	}
	s.explainer = explain.Explainer{Service: s.service, Refusals: refusals, Rules: s.opts.Rules}
	routes["/v1/explain"] = route{need: twotier.RoleRead, at: clientAPI, answer: s.explain}
}

// explain answers why a key, or a refusal with an id, is or was refused. It takes memory for the
// answer first.
func (s *Server) explain(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	q, p := parseExplainQuery(ctx)
	if p != nil {
		return p
	}
	q.Grant = grantOf(ctx)
	plan, f := s.explainer.Plan(x.context, q)
	if f != nil {
		return wire.FromFailure(f)
	}
	if p := x.memory.ReserveExpected(plan.Bytes()); p != nil {
		return p
	}
	x.out, f = plan.Append(x.context, x.out, x.memory.MostForAnswer())
	return wire.FromFailure(f)
}
