package httpapi

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/syncer"
)

// exchange is the memory that answering one request takes. It is pooled, so that answering
// allocates nothing.
type exchange struct {
	decoder
	results []syncer.Result
	out     []byte
	context *requestContext
	size    int64 // about what all of it has grown to
}

const (
	// smallExchange is what an exchange may have grown to that any number of may be kept, until the
	// garbage is collected.
	smallExchange = 16 << 10
	// largeExchange is what one may have grown to that is kept at all: a batch of some thousand
	// operations.
	largeExchange = 1 << 20
)

// exchanges are those that nobody uses. What large requests leave is bounded in number and size.
type exchanges struct {
	small sync.Pool
	large chan *exchange
}

// newExchanges returns exchanges that keep about so many bytes in large ones.
func newExchanges(bytes int64) exchanges {
	return exchanges{large: make(chan *exchange, max(1, bytes/largeExchange))}
}

// get returns an exchange, one that is large already if it can be had and is needed.
func (e *exchanges) get(large bool) *exchange {
	if large {
		select {
		case x := <-e.large:
			return x
		default:
		}
	}
	if x, ok := e.small.Get().(*exchange); ok {
		return x
	}
	return &exchange{context: new(requestContext)}
}

// put takes an exchange back.
func (e *exchanges) put(x *exchange) {
	switch {
	case x.size <= smallExchange:
		e.small.Put(x)
	case x.size <= largeExchange:
		select {
		case e.large <- x:
		default:
		}
	}
}

// begin returns an exchange for a request, whose body has been read.
func (s *Server) begin(ctx *fasthttp.RequestCtx) *exchange {
	large := len(ctx.PostBody()) > prefetched
	x := s.exchanges.get(large)
	x.out = x.out[:0]
	x.hold = holdOf(ctx)
	if x.context == nil {
		x.context = new(requestContext)
	}
	start := ctx.Time()
	if start.IsZero() || large { // the body took its time
		start = time.Now()
	}
	x.grant = grantOf(ctx)
	x.context.reset(start.Add(s.opts.RequestTimeout))
	return x
}

// finish ends the use of x by a request. It is not deferred: a panic leaves x to the garbage
// collector, whatever its state.
func (s *Server) finish(x *exchange) {
	if !x.context.finish() {
		x.context = nil
	}
	x.size = max(x.size, x.cost, int64(cap(x.out)))
	if len(x.out) <= ownBytes || !x.hold.until(func() { s.exchanges.put(x) }) {
		s.exchanges.put(x)
	}
}

// room returns n results, with the memory of earlier ones.
func (x *exchange) room(n int) []syncer.Result {
	if n > cap(x.results) {
		grown := make([]syncer.Result, n)
		copy(grown, x.results[:cap(x.results)])
		x.results = grown
	}
	x.results = x.results[:cap(x.results)]
	return x.results[:n]
}

// answer makes x.out the body of the response. If it is long it is not copied, so that x is in use
// until it is written.
func (x *exchange) answer(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/json")
	if x.hold == nil || len(x.out) <= ownBytes {
		ctx.Response.SetBody(x.out)
	} else {
		ctx.Response.SetBodyRaw(x.out)
	}
}
