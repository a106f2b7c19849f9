package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ratefield"
)

// sendRefusal turns a refusal into a response of that status, with a Retry-After made from
// retryAfter in milliseconds. It sets no Retry-After if waiting will not help.
func sendRefusal(ctx *fasthttp.RequestCtx, status int, retryAfter int64) {
	ctx.SetStatusCode(status)
	if retryAfter >= 0 {
		ctx.Response.Header.Set("Retry-After",
			strconv.FormatInt(max(1, ratefield.Seconds(retryAfter)), 10))
	}
}

// setRateLimitFields sets the fields RateLimit-Policy and RateLimit for the only operation of x.
func setRateLimitFields(ctx *fasthttp.RequestCtx, x *requestState, res *twotier.Result) {
	if policy, state := x.encoder().RateLimitFields(res); policy != "" {
		ctx.Response.Header.Set("RateLimit-Policy", policy)
		ctx.Response.Header.Set("RateLimit", state)
	}
}
