package httpapi

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/syncer"
)

// requestState is the memory for answering one request. It is pooled, so that answering allocates
// nothing.
type requestState struct {
	decoder
	results []syncer.Result
	out     []byte
	context *requestContext
	size    int64 // approximate size that it has grown to
}

const (
	// smallState is the size up to which any number of states are kept until a garbage collection.
	smallState = 16 << 10
	// largeState is the size up to which a state is kept at all: a batch of some thousand
	// operations.
	largeState = 1 << 20
)

// statePool has the states that are not in use. It bounds how many large ones it keeps.
type statePool struct {
	small sync.Pool
	large chan *requestState
}

// newStatePool returns a pool that keeps about this many bytes in large states.
func newStatePool(bytes int64) statePool {
	return statePool{large: make(chan *requestState, max(1, bytes/largeState))}
}

// get returns a state, preferably a large one if large is set.
func (p *statePool) get(large bool) *requestState {
	if large {
		select {
		case x := <-p.large:
			return x
		default:
		}
	}
	if x, ok := p.small.Get().(*requestState); ok {
		return x
	}
	return &requestState{context: new(requestContext)}
}

// put returns a state to the pool.
func (p *statePool) put(x *requestState) {
	switch {
	case x.size <= smallState:
		p.small.Put(x)
	case x.size <= largeState:
		select {
		case p.large <- x:
		default:
		}
	}
}

// begin returns the state for a request whose body has been read.
func (s *Server) begin(ctx *fasthttp.RequestCtx) *requestState {
	large := len(ctx.PostBody()) > prefetched
	x := s.states.get(large)
	x.out = x.out[:0]
	x.memory = memoryOf(ctx)
	if x.context == nil {
		x.context = new(requestContext)
	}
	start := ctx.Time()
	if start.IsZero() || large { // receiving the body took time
		start = time.Now()
	}
	x.grant = grantOf(ctx)
	x.context.reset(start.Add(s.opts.RequestTimeout))
	return x
}

// finish ends the use of x by a request. It is not deferred: after a panic x may be in any state,
// and is left to the garbage collector.
func (s *Server) finish(x *requestState) {
	if !x.context.finish() {
		x.context = nil
	}
	x.size = max(x.size, x.cost, int64(cap(x.out)))
	if len(x.out) <= ownBytes || !x.memory.onRelease(func() { s.states.put(x) }) {
		s.states.put(x)
	}
}

// room returns n results that reuse the memory of earlier ones.
func (x *requestState) room(n int) []syncer.Result {
	if n > cap(x.results) {
		grown := make([]syncer.Result, n)
		copy(grown, x.results[:cap(x.results)])
		x.results = grown
	}
	x.results = x.results[:cap(x.results)]
	return x.results[:n]
}

// answer makes x.out the body of the response. A long body is not copied, so x stays in use until
// it is written.
func (x *requestState) answer(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/json")
	if x.memory == nil || len(x.out) <= ownBytes {
		ctx.Response.SetBody(x.out)
	} else {
		ctx.Response.SetBodyRaw(x.out)
	}
}
