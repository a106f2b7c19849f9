package httpapi

import (
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
)

// setRateLimitFields sets the fields RateLimit-Policy and RateLimit for the only operation of x.
func setRateLimitFields(ctx *fasthttp.RequestCtx, x *requestState, res *twotier.Result) {
	if policy, state := x.encoder().RateLimitFields(res); policy != "" {
		ctx.Response.Header.Set("RateLimit-Policy", policy)
		ctx.Response.Header.Set("RateLimit", state)
	}
}
