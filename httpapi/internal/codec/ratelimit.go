package codec

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ratefield"
)

// RateLimitFields returns the fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers for operation 0, an acquire. Policies are named by the paths
// that "refused_by" uses, or by their rule. A field has no room for several checks, so it shows the
// first one that refused, or else the first one. It does not show rules that refuse nothing. Of a
// calendar window it always shows the end.
func (e Encoder) RateLimitFields(res *twotier.Result) (policy, state string) {
	shown := 0
	for j := range res.Checks {
		if res.Checks[j].Refused {
			shown = j
			break
		}
	}
	if shown >= len(res.Checks) {
		return "", ""
	}
	c := &res.Checks[shown]
	var fields ratefield.Fields
	for k := range c.Limits {
		r := e.RuleOf(0, shown, k)
		if r != nil && r.Rule.State != twotier.RuleOn {
			continue
		}
		var path []byte
		if r == nil {
			path = e.appendCheckPath(nil, 0, shown)
		}
		l := &c.Limits[k]
		shows := ratefield.Limit{Name: string(e.AppendLimitName(path, 0, shown, k)), Max: l.Max,
			Window: e.Ops[0].Checks[shown].Limits[k].Window, Remaining: l.Max - l.Count}
		switch {
		case l.Period != nil:
			at := e.timeOf(0, shown, res)
			start, end := l.Period.Around(at)
			shows.Window, shows.Wait = end-start, end-at
		case l.Refused:
			shows.Wait = c.RetryAfter
		}
		if r != nil && banned(res, shown, r.Rule.Name) {
			shows.Remaining, shows.Wait = 0, c.RetryAfter
		}
		fields.Add(&shows)
	}
	return fields.Policy(), fields.State()
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
