package httpapi

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/receive"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

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
