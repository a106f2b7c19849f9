package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/syncer"
)

// setRateLimit sets the RateLimit and RateLimit-Policy headers of
// draft-ietf-httpapi-ratelimit-headers for operation 0, an acquire. Policies are named by the paths
// that "refused_by" uses. A header has no room for several checks, so it shows the first one that
// refused, or else the first one.
func (d *decoder) setRateLimit(ctx *fasthttp.RequestCtx, res *syncer.Result) {
	shown := 0
	for j := range res.Checks {
		if res.Checks[j].Refused {
			shown = j
			break
		}
	}
	if shown >= len(res.Checks) {
		return
	}
	c := &res.Checks[shown]
	var policy, state []byte
	for k := range c.Limits {
		l := &c.Limits[k]
		if k > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		policy = append(d.appendPath(append(policy, '"'), 0, shown, k), `";q=`...)
		policy = strconv.AppendInt(policy, l.Max, 10)
		policy = append(policy, ";w="...)
		policy = strconv.AppendInt(policy, seconds(d.limits[d.starts[shown]+k].Window), 10)
		state = append(d.appendPath(append(state, '"'), 0, shown, k), `";r=`...)
		state = strconv.AppendInt(state, remaining(l), 10)
		if l.Refused && c.RetryAfter > 0 {
			state = append(state, ";t="...)
			state = strconv.AppendInt(state, seconds(c.RetryAfter), 10)
		}
	}
	ctx.Response.Header.SetBytesV("RateLimit-Policy", policy)
	ctx.Response.Header.SetBytesV("RateLimit", state)
}

// deny turns a refusal into a 429. It sets no Retry-After if waiting will not help.
func deny(ctx *fasthttp.RequestCtx, res *syncer.Result) {
	ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
	if res.RetryAfter >= 0 {
		ctx.Response.Header.Set("Retry-After",
			strconv.FormatInt(max(1, seconds(res.RetryAfter)), 10))
	}
}

// seconds rounds milliseconds up.
func seconds(ms int64) int64 { return ms/1000 + min(1, ms%1000) }
