package httpapi

import (
	"fmt"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/receive"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
)

// handle answers one request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	defer s.recoverPanic(ctx)
	if s.opts.Tracer != nil {
		s.startSpan(ctx)
	}
	p := s.dispatch(ctx)
	// Memory for large requests was reserved before they were executed, but not for answers to
	// queries, and for some long ones. A reply to a node takes none from clients: a refusal now
	// would mean that nothing was done.
	m := memoryOf(ctx)
	if p == nil && connOf(ctx).endpoint == s.endpoints[0] && !m.IsOfNode() {
		p = m.ReserveUpTo(int64(len(ctx.Response.Body())))
		if p != nil && !ctx.IsGet() && !ctx.IsHead() && string(ctx.Path()) != "/v1/backtest" {
			p = memory.UnansweredProblem(p)
		}
	}
	m.ReturnUnused()
	if p != nil {
		s.countLimitProblem(p)
		sendProblem(ctx, p)
	}
	if receive.HasUnreadBody(ctx) {
		setLinger(ctx, p)
	}
	if s.IsClosing() || receive.HasUnreadBody(ctx) {
		ctx.SetConnectionClose()
	}
	s.countResponse(ctx)
}

// dispatch finds the handler of a request and calls it.
func (s *Server) dispatch(ctx *fasthttp.RequestCtx) *wire.Problem {
	h := &ctx.Request.Header
	twice, p := receive.CheckFraming(h)
	if p != nil {
		ctx.SetConnectionClose()
		return p
	}
	d := connOf(ctx).endpoint
	r, ok := d.routes[string(receive.Path(h.RequestURI()))]
	// Nodes authenticate with their secret, and call each other by other names.
	if r.at != peerAPI && !d.hosts.Allow(ctx.Host()) && !(r.any && s.isFromProxy(ctx)) {
		return &wire.Problem{Kind: wire.Forbidden, Field: "Host",
			Detail: "not a name of this server; it answers to its address, and to what --hosts " +
				"lists"}
	}
	if !ok {
		return &wire.Problem{Kind: wire.NotFound,
			Detail: "nothing is served under this path; /openapi.json lists what is"}
	}
	if twice != "" && !r.any { // a proxy may forward any header of its client
		return receive.TwiceProblem(twice)
	}
	if r.put != nil && ctx.IsPut() {
		r = *r.put
	} else if r.get != nil && (ctx.IsGet() || ctx.IsHead()) {
		r = *r.get
	} else if p := checkMethod(ctx, &r); p != nil {
		return p
	}
	if r.post && !r.binary {
		if p := receive.CheckMedia(h, r.yaml); p != nil {
			return p
		}
	}
	if r.guarded || s.opts.Tokens != nil {
		g, p := s.access.authorize(h, &r)
		if p != nil {
			return p
		}
		if g != nil {
			ctx.SetUserValue(grantKey, g)
		}
	}
	if r.admit != nil {
		if p := r.admit(ctx); p != nil {
			return p
		}
	}
	if r.post {
		memoryOf(ctx).SetPatience(h.Peek(headerTimeout))
		if p := receive.ReadBody(ctx, memoryOf(ctx), r.body); p != nil {
			return p
		}
	}
	return s.call(ctx, &r)
}

// call calls the handler of a request whose grant and query the route accepts.
func (s *Server) call(ctx *fasthttp.RequestCtx, r *route) *wire.Problem {
	if r.all {
		if p := wire.FromFailure(ask.CheckGrantAll(grantOf(ctx))); p != nil {
			return p
		}
	}
	if r.bare {
		if p := refuseQuery(ctx); p != nil {
			return p
		}
	}
	if r.answer != nil {
		return s.runAnswerer(ctx, r.answer)
	}
	return r.handler(ctx)
}

// countLimitProblem counts a problem caused by a limit of this server.
func (s *Server) countLimitProblem(p *wire.Problem) {
	if p.Limit {
		s.CountLimited()
	}
}

// checkMethod refuses methods that a route does not have.
func checkMethod(ctx *fasthttp.RequestCtx, r *route) *wire.Problem {
	switch {
	case r.any, r.post && ctx.IsPost(), !r.post && (ctx.IsGet() || ctx.IsHead()):
		return nil
	case r.get != nil:
		return &wire.Problem{Kind: wire.Method, Detail: "want GET or POST",
			Allow: "GET, HEAD, POST"}
	case r.post:
		return &wire.Problem{Kind: wire.Method, Detail: "want POST", Allow: "POST"}
	case r.put != nil:
		return &wire.Problem{Kind: wire.Method, Detail: "want GET or PUT", Allow: "GET, HEAD, PUT"}
	}
	return &wire.Problem{Kind: wire.Method, Detail: "want GET", Allow: "GET, HEAD"}
}

// countResponse counts the response by its status code and ends its span.
func (s *Server) countResponse(ctx *fasthttp.RequestCtx) {
	if code := ctx.Response.StatusCode(); code < len(s.codes) {
		s.codes[code].Add(1)
	}
	if s.opts.Tracer != nil {
		s.endSpan(ctx)
	}
}

// recoverPanic turns a panic into a 500; fasthttp would let it end the process.
func (s *Server) recoverPanic(ctx *fasthttp.RequestCtx) {
	v := recover()
	if v == nil {
		return
	}
	s.logPanic(ctx, v, debug.Stack())
	// Response.Reset would switch the Date header back on, and with it fasthttp's clock goroutine.
	// sendProblem replaces the body.
	p := &wire.Problem{Kind: wire.Internal,
		Detail: "an error of this server's own; its log says more"}
	sendProblem(ctx, p)
	ctx.SetConnectionClose()
	s.countResponse(ctx)
}

// logPanic logs that the handler of a request panicked.
func (s *Server) logPanic(ctx *fasthttp.RequestCtx, v any, stack []byte) {
	s.log.Error("panic in a handler", "path", string(ctx.Path()), "panic", fmt.Sprint(v),
		"trace_id", traceOf(&ctx.Request.Header).TraceID(), "stack", string(stack))
}

// answerUnreadable answers a request that fasthttp could not parse.
func (s *Server) answerUnreadable(ctx *fasthttp.RequestCtx, err error) {
	p := receive.ProblemOf(err)
	if c := connOf(ctx); receive.IsHeaderTooLong(err) && !c.header.long {
		if p = c.header.moveToLargeBuffer(&c.memory); p == nil {
			return
		}
		s.countLimitProblem(p)
	}
	setLinger(ctx, p)
	sendProblem(ctx, p)
	s.countResponse(ctx)
}

// setLinger makes Close read the rest of a request that the client is still sending, unless the
// client was too slow.
func setLinger(ctx *fasthttp.RequestCtx, p *wire.Problem) {
	if c := connOf(ctx); p == nil || p.Kind != wire.Timeout {
		c.mu.Lock()
		c.end = max(c.end, lingering)
		c.mu.Unlock()
	}
}
