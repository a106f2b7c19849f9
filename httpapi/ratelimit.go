package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/syncer"
)

// setRateLimit sets the RateLimit and RateLimit-Policy headers of
// draft-ietf-httpapi-ratelimit-headers for operation 0, an acquire. Policies are named by the paths
// that "refused_by" uses, or by their rule. A header has no room for several checks, so it shows
// the first one that refused, or else the first one. It does not show rules that refuse nothing.
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
		r := d.ruleOf(0, shown, k)
		if r != nil && r.rule.State != rule.On {
			continue
		}
		if len(policy) > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		l := &c.Limits[k]
		policy = append(d.appendPolicy(policy, shown, k, r), ";q="...)
		policy = strconv.AppendInt(policy, l.Max, 10)
		policy = append(policy, ";w="...)
		policy = strconv.AppendInt(policy, seconds(d.limits[d.starts[shown]+k].Window), 10)
		state = append(d.appendPolicy(state, shown, k, r), ";r="...)
		state = strconv.AppendInt(state, max(0, l.Max-l.Count), 10)
		if l.Refused && c.RetryAfter > 0 {
			state = append(state, ";t="...)
			state = strconv.AppendInt(state, seconds(c.RetryAfter), 10)
		}
	}
	if len(policy) > 0 {
		ctx.Response.Header.SetBytesV("RateLimit-Policy", policy)
		ctx.Response.Header.SetBytesV("RateLimit", state)
	}
}

// appendPolicy appends the name of the policy of limit k of check j of operation 0, in quotes.
func (d *decoder) appendPolicy(b []byte, j, k int, r *namedLimit) []byte {
	b = append(b, '"')
	if r != nil {
		b = append(b, r.policy()...)
	} else {
		b = d.appendPath(b, 0, j, k)
	}
	return append(b, '"')
}

// deny turns a refusal into a response of that status, which says after how many milliseconds to
// try again. It sets no Retry-After if waiting will not help.
func deny(ctx *fasthttp.RequestCtx, status int, retryAfter int64) {
	ctx.SetStatusCode(status)
	if retryAfter >= 0 {
		ctx.Response.Header.Set("Retry-After",
			strconv.FormatInt(max(1, seconds(retryAfter)), 10))
	}
}

// seconds rounds milliseconds up.
func seconds(ms int64) int64 { return ms/1000 + min(1, ms%1000) }
