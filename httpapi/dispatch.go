package httpapi

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/receive"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
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

// requestState is the memory for answering one request. It is pooled, so that answering allocates
// nothing.
type requestState struct {
	codec.Decoder
	memory  *memory.Request
	out     []byte
	context *request.Context
	traced  traced
	arrival verdicts.Arrival
	size    int64 // approximate size that it has grown to
}

const (
	// smallState is the size up to which any number of states are kept until a garbage collection.
	smallState = 16 << 10
	// largeState is the size up to which a state is kept at all: most batches of some thousand
	// operations.
	largeState = 8 << 20
)

// expected is the memory that a batch usually needs, as a multiple of the length of its body.
const expected = 24

// statePool holds the unused states. It bounds the memory of the large ones. Making a large state
// anew for each batch would cost more than the batch: its slices grow step by step, are cleared,
// and are scanned by the garbage collector.
type statePool struct {
	small sync.Pool

	mu    sync.Mutex
	large []*requestState // the last is used next: it is the likeliest to be in the cache
	room  int64           // bytes for further large states
}

// newStatePool returns a pool that keeps at most this many bytes in large states, but at least one
// mebibyte.
func newStatePool(bytes int64) *statePool { return &statePool{room: max(bytes, 1<<20)} }

// get returns a state for a request that may need this many bytes.
func (p *statePool) get(bytes int64) *requestState {
	if bytes > smallState {
		if x := p.popLarge(); x != nil {
			return x
		}
	}
	if x, ok := p.small.Get().(*requestState); ok {
		return x
	}
	return &requestState{context: new(request.Context)}
}

// popLarge returns a large state, or nil if there is none.
func (p *statePool) popLarge() *requestState {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.large) - 1
	if last < 0 {
		return nil
	}
	x := p.large[last]
	p.large, p.large[last] = p.large[:last], nil
	p.room += x.size
	return x
}

// put returns a state to the pool.
func (p *statePool) put(x *requestState) {
	switch {
	case x.size <= smallState:
		p.small.Put(x)
	case x.size <= largeState:
		p.keepLarge(x)
	}
}

// keepLarge keeps a large state if there is room for it.
func (p *statePool) keepLarge(x *requestState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.size <= p.room {
		p.room -= x.size
		p.large = append(p.large, x)
	}
}

// beginRequest returns the state for a request whose body has been read.
func (s *Server) beginRequest(ctx *fasthttp.RequestCtx) *requestState {
	return s.beginRequestSized(ctx, int64(len(ctx.PostBody())))
}

// beginRequestSized is beginRequest for a request with a body of this many bytes, or one whose body
// is not read.
func (s *Server) beginRequestSized(ctx *fasthttp.RequestCtx, body int64) *requestState {
	x := s.states.get(body * expected)
	x.out = x.out[:0]
	x.memory = memoryOf(ctx)
	x.Memory = x.memory
	if x.context == nil {
		x.context = new(request.Context)
	}
	start := ctx.Time()
	if start.IsZero() || body > receive.Prefetched { // receiving the body took time
		start = time.Now()
	}
	x.Grant, x.Rules, x.Shadow = nil, s.opts.Rules, s.opts.Shadow
	x.Holds = s.opts.Holds
	x.ForgetRules()
	if s.opts.Tokens != nil || s.opts.AdminToken != "" {
		x.Grant = grantOf(ctx)
	}
	x.arrival = verdicts.Arrival{Endpoint: verdicts.HTTP, Began: start, Trace: x.context}
	x.traced.ctx = ctx
	if s.opts.Tracer != nil {
		x.traced.of = spanOf(ctx)
		x.arrival.Span = x.traced.of.Recorded()
	}
	x.context.Reset(start.Add(s.opts.RequestTimeout), &x.traced)
	return x
}

// finishRequest ends the use of x by a request. It is not deferred: after a panic x may be in any
// state, and is left to the garbage collector.
func (s *Server) finishRequest(x *requestState) {
	if !x.context.Finish() {
		x.context = nil
	}
	x.traced.ctx, x.traced.of, x.arrival = nil, nil, verdicts.Arrival{}
	x.size = max(x.size, x.Cost, int64(cap(x.out)))
	if len(x.out) <= memory.OwnBytes {
		s.states.put(x)
	} else {
		x.memory.OnRelease(func() { s.states.put(x) })
	}
}

// answerer handles a request with a state, whose output becomes the body of the response.
type answerer func(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem

// runAnswerer calls a with a state.
func (s *Server) runAnswerer(ctx *fasthttp.RequestCtx, a answerer) *wire.Problem {
	x := s.beginRequest(ctx)
	p := a(ctx, x)
	if p == nil {
		x.setResponseBody(ctx)
	}
	s.finishRequest(x)
	return p
}

// setResponseBody makes x.out the body of the response. A long body is not copied, so x stays in
// use until it is written.
func (x *requestState) setResponseBody(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/json")
	if len(x.out) <= memory.OwnBytes {
		ctx.Response.SetBody(x.out)
	} else {
		ctx.Response.SetBodyRaw(x.out)
	}
}

// encoder returns the encoder of the answers to the operations of x.
func (x *requestState) encoder() codec.Encoder { return codec.Encoder{Request: &x.Request} }
