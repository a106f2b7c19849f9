package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/decisions"
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

// headerRefusal is the header with the id of a refusal, which GET /v1/explain looks up.
const headerRefusal = "Twotier-Refusal"

// setRefusalField sets the field with the id of the refusal of a request's only operation, unless
// it has none.
func setRefusalField(ctx *fasthttp.RequestCtx, id decisions.RefusalID) {
	if !id.IsZero() {
		var text [128]byte
		ctx.Response.Header.SetBytesV(headerRefusal, id.Append(text[:0]))
	}
}
