package httpapi

import (
	"time"

	"github.com/valyala/fasthttp"

	"twotier/internal/node"
)

// exchange is the memory that answering one request takes. It is pooled, so that answering allocates nothing.
type exchange struct {
	decoder
	results []node.Result
	out     []byte
	context *requestContext
}

// begin returns an exchange for a request.
func (s *Server) begin(ctx *fasthttp.RequestCtx) *exchange {
	x := s.exchanges.Get().(*exchange)
	x.out = x.out[:0]
	if x.context == nil {
		x.context = new(requestContext)
	}
	start := ctx.Time()
	if start.IsZero() {
		start = time.Now()
	}
	x.grant = grantOf(ctx)
	x.context.reset(start.Add(s.opts.RequestTimeout))
	return x
}

// finish returns x to the pool. It is not deferred: a panic leaves x to the garbage collector, whatever its state.
func (s *Server) finish(x *exchange) {
	if !x.context.finish() {
		x.context = nil
	}
	s.exchanges.Put(x)
}

// bulky reports whether the results have grown so much that keeping them would tie up memory: each has slices of its
// own, and 10,000 of them could each have grown to the largest operation there is.
func bulky(results []node.Result) bool {
	const most = 64 << 10
	kept := 0
	for i := range results {
		checks := results[i].Checks
		kept += cap(checks)
		for j := range checks[:cap(checks)] {
			kept += cap(checks[:cap(checks)][j].Limits)
		}
	}
	return kept > most
}

// room returns n results, with the memory of earlier ones.
func (x *exchange) room(n int) []node.Result {
	if n > cap(x.results) {
		grown := make([]node.Result, n)
		copy(grown, x.results[:cap(x.results)])
		x.results = grown
	}
	x.results = x.results[:cap(x.results)]
	return x.results[:n]
}

// answer makes x.out the body of the response.
func (x *exchange) answer(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/json")
	ctx.Response.SetBody(x.out)
}
