package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/request"
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
	for _, p := range points {
		b = fmt.Appendf(wire.AppendComma(b), "[%d,%d]", p.Start, p.Count)
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
		b = wire.AppendString(append(wire.AppendComma(b), `{"ns":`...), keys[i].NS)
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

// setMode changes how the whole cluster counts.
func (s *Server) setMode(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	x.Reset(ctx.PostBody())
	text, p := decodeText(&x.Scanner, "mode")
	mode := cluster.Mode(text)
	if p == nil && mode != cluster.TwoTier && mode != cluster.Redis {
		p = wire.FieldProblem("mode", `want "two-tier" or "redis"`)
	}
	if p = x.EndBody(p); p != nil {
		return p
	}
	// SetMode has its own timeout, which is longer than that of a request.
	if err := s.service.SetMode(context.Background(), mode); err != nil {
		return s.problemOfQuery(err)
	}
	x.out = append(wire.AppendString(append(x.out, `{"mode":`...), string(mode)), '}')
	return nil
}

// decodeText reads an object with one field, a text. It is empty if the field is missing.
func decodeText(d *wire.Scanner, field string) (text string, p *wire.Problem) {
	p = d.ReadObject("an object with "+field, func(name []byte) *wire.Problem {
		if string(name) != field || text != "" {
			return wire.FieldProblem(request.Clip(name), "want "+field+", once")
		}
		read, p := d.ReadText()
		if p != nil {
			return p.PrefixField(field)
		}
		text = string(read)
		return nil
	})
	return text, p
}

// Peer handles messages from other nodes.
type Peer interface {
	// Admit checks the pass of a message, and its size, before any of it is read. An error means
	// that the sender is not a node of this cluster.
	Admit(pass string, size int) error
	// Handle executes one message, which it may modify, and returns the reply. An error means that
	// the message is not from a node of this cluster.
	Handle(ctx context.Context, message []byte) (reply []byte, err error)
}

// admitPeer lets only nodes send messages. Reading messages takes no memory from clients.
func (s *Server) admitPeer(ctx *fasthttp.RequestCtx) *wire.Problem {
	h := &ctx.Request.Header
	if string(h.ContentType()) != peerhttp.Media {
		return &wire.Problem{Kind: wire.MediaType, Detail: "this path is for the other nodes"}
	}
	pass := string(h.Peek(peerhttp.HeaderPass))
	if err := s.opts.Peer.Admit(pass, h.ContentLength()); err != nil {
		return notOfClusterProblem()
	}
	memoryOf(ctx).ChargeNode(s.nodes)
	return nil
}

func notOfClusterProblem() *wire.Problem {
	return &wire.Problem{Kind: wire.Forbidden, Detail: "not a message of this cluster"}
}

// handlePeerMessage handles a message from another node.
func (s *Server) handlePeerMessage(ctx *fasthttp.RequestCtx) *wire.Problem {
	reply, err := s.opts.Peer.Handle(context.Background(), ctx.PostBody())
	if err != nil {
		return notOfClusterProblem()
	}
	ctx.SetContentType(peerhttp.Media)
	ctx.Response.SetBodyRaw(reply)
	return nil
}
