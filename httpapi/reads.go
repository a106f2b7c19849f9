package httpapi

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
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

func (s *Server) showCluster(ctx *fasthttp.RequestCtx) *wire.Problem {
	owners, nodes, p := parseClusterQuery(ctx)
	if p != nil {
		return p
	}
	view := s.service.Cluster()
	if owners {
		view = s.withOwners(view)
	}
	if view.Members == nil {
		view.Members = []cluster.Member{}
	}
	if nodes {
		s.service.Survey(context.Background(), &view) // Survey has its own timeout
	}
	body, err := json.Marshal(view)
	if err != nil { // a share that is not a finite number
		return s.problemOf(err, false)
	}
	return sendJSON(ctx, body)
}

// showEvents answers with the events that the members have seen.
func (s *Server) showEvents(ctx *fasthttp.RequestCtx) *wire.Problem {
	all := s.service.Events(context.Background()) // Events has its own timeout
	if all.Events == nil {
		all.Events = []cluster.Event{}
	}
	if all.Departed == nil {
		all.Departed = []cluster.Departed{}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return s.problemOf(err, false)
	}
	return sendJSON(ctx, body)
}

// withOwners adds the owners to a view. Owners are indexes into the view's members, so both must
// come from the same table.
func (s *Server) withOwners(view cluster.View) cluster.View {
	for range 8 {
		owners, seed := s.service.Owners()
		again := s.service.Cluster()
		if again.RingVersion == view.RingVersion {
			again.Owners, again.HashSeed = owners, seed
			return again
		}
		view = again
	}
	return view // it keeps changing: leave out the owners
}

// sendJSON makes text the body of the response, and keeps it until it is written.
func sendJSON(ctx *fasthttp.RequestCtx, text []byte) *wire.Problem {
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(text)
	return nil
}

// showLive answers as long as the process serves at all.
func (s *Server) showLive(ctx *fasthttp.RequestCtx) *wire.Problem {
	return sendJSON(ctx, []byte(`{"live":true}`))
}

// showReady answers 200 while the node can answer honestly, even if degraded, and 503 while it is
// closing or can't.
func (s *Server) showReady(ctx *fasthttp.RequestCtx) *wire.Problem {
	degraded, err := s.service.Ready()
	if err != nil {
		return &wire.Problem{Kind: wire.Unavailable, Detail: err.Error()}
	}
	if s.IsClosing() {
		return &wire.Problem{Kind: wire.Unavailable, Detail: "closing"}
	}
	b := strconv.AppendBool([]byte(`{"ready":true,"degraded":`), len(degraded) > 0)
	for i, reason := range degraded {
		b = append(b, [...]string{`,"reasons":[`, ","}[min(i, 1)]...)
		b = wire.AppendString(b, []byte(reason))
	}
	if len(degraded) > 0 {
		b = append(b, ']')
	}
	c := s.service.Stats().Counter
	b = strconv.AppendInt(append(b, `,"unflushed_age_ms":`...), c.UnflushedAge.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"max_lag_ms":`...), c.MaxLag.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"waiting":`...), c.WaitingForRoom, 10)
	return sendJSON(ctx, append(b, '}'))
}
