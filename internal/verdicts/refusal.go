package verdicts

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/refusallog"
)

// logRefusal records that the limits of one origin have refused check j, unless its rule refuses
// nothing.
func (r *Run) logRefusal(c *twotier.Check, j int, res *twotier.Result, o Origin,
	judged []twotier.LimitResult) {
	if o.Rule != nil && o.Rule.State != twotier.RuleOn {
		return
	}
	e := refusallog.Entry{Door: r.endpoint, NS: c.NS, Key: c.Key, N: c.N, Rule: o.ruleName(),
		Version: o.Version, Reason: refusallog.Cold, RetryAfter: res.Checks[j].RetryAfter,
		Limits: judged}
	for k := range judged {
		if judged[k].Refused {
			if e.Reason = refusallog.Limit; o.Distinct {
				e.Reason = refusallog.Distinct
			}
		}
	}
	for k := range res.Leases {
		l := &res.Leases[k]
		if e.Reason == refusallog.Cold && l.Check == j && l.Rule == e.Rule && l.Refused &&
			!l.Shadow {
			e.Reason, e.Open, e.Most = refusallog.Concurrent, l.Open, l.Max
		}
	}
	for k := range res.Bans {
		if b := &res.Bans[k]; b.Check == j && b.Rule == e.Rule && e.Rule != "" {
			if e.Until = b.Until; !b.Started {
				e.Reason = refusallog.Ban
			}
		}
	}
	id := r.refusals.Record(&e)
	if r.refusal.IsZero() {
		r.refusal = id
	}
}
