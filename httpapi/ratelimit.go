package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/ratefield"
)

// setRateLimit sets the RateLimit and RateLimit-Policy headers of
// draft-ietf-httpapi-ratelimit-headers for operation 0, an acquire. Policies are named by the paths
// that "refused_by" uses, or by their rule. A header has no room for several checks, so it shows
// the first one that refused, or else the first one. It does not show rules that refuse nothing.
func (d *decoder) setRateLimit(ctx *fasthttp.RequestCtx, res *twotier.Result) {
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
	var fields ratefield.Fields
	for k := range c.Limits {
		r := d.RuleOf(0, shown, k)
		if r != nil && r.Rule.State != twotier.RuleOn {
			continue
		}
		l := &c.Limits[k]
		shows := ratefield.Limit{Name: d.policyName(shown, k, r), Max: l.Max,
			Window: d.Ops[0].Checks[shown].Limits[k].Window, Remaining: l.Max - l.Count}
		if l.Refused {
			shows.Wait = c.RetryAfter
		}
		if r != nil && banned(res, shown, r.Rule.Name) {
			shows.Remaining, shows.Wait = 0, c.RetryAfter
		}
		fields.Add(&shows)
	}
	if policy := fields.Policy(); policy != "" {
		ctx.Response.Header.Set("RateLimit-Policy", policy)
		ctx.Response.Header.Set("RateLimit", fields.State())
	}
}

// banned reports whether a ban under the named rule has refused check j.
func banned(res *twotier.Result, j int, name string) bool {
	for k := range res.Bans {
		if b := &res.Bans[k]; b.Check == j && !b.Started && b.Rule == name {
			return true
		}
	}
	return false
}

// policyName returns the name of the policy of limit k of check j of operation 0.
func (d *decoder) policyName(j, k int, r *ask.RuledLimit) string {
	if r != nil {
		return r.Policy()
	}
	return string(d.appendPath(nil, 0, j, k))
}

// deny turns a refusal into a response of that status, with a Retry-After made from retryAfter in
// milliseconds. It sets no Retry-After if waiting will not help.
func deny(ctx *fasthttp.RequestCtx, status int, retryAfter int64) {
	ctx.SetStatusCode(status)
	if retryAfter >= 0 {
		ctx.Response.Header.Set("Retry-After",
			strconv.FormatInt(max(1, ratefield.Seconds(retryAfter)), 10))
	}
}
