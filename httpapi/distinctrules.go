package httpapi

import (
	"fmt"
	"time"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/syncer"
)

// What a document of rules may demand is what an operation may have.
var _ [distinct.MaxLimits]struct{} = [rule.MaxDistinct]struct{}{}

// distinctRules adds the limits on different values of the rules that were named for a key, which
// is in their namespace then. Where neither rules nor limits are named, the default rules judge
// what is added now: limits are about the present.
func (d *decoder) distinctRules(c *syncer.Check, op *distinct.Op) *problem {
	if len(d.naming) == 0 && len(d.limits) == 0 && op.TS == 0 {
		if p := d.takeRules(); p != nil {
			return p
		}
		d.naming = append(d.naming, d.inForce.DistinctDefaults(c.NS)...)
	}
	if len(d.naming) == 0 {
		return nil
	}
	if op.TS != 0 { // also where all of them are off: to switch one on must not fail a request
		return refused("ts", distinct.WantNoTS)
	}
	if p := setNamespace(c, d.naming[0]); p != nil {
		return p
	}
	for i, r := range d.naming {
		if len(r.Distinct) == 0 {
			return refused("rules["+itoa(i)+"]", request.OnlyEvents(r.Name))
		}
		if r.State == rule.Off {
			continue
		}
		if p := d.addDistinctRule(r, r.DistinctFor(c.Key), op); p != nil {
			return p
		}
	}
	return nil
}

// addDistinctRule adds the limits that a rule has for a key.
func (d *decoder) addDistinctRule(r *rule.Rule, limits []rule.Limit, op *distinct.Op) *problem {
	if len(d.limits)+len(limits) > distinct.MaxLimits {
		return refused("rules", fmt.Sprintf("with them there are more than %d limits",
			distinct.MaxLimits))
	}
	for i, l := range limits {
		if r.State == rule.Shadow {
			op.Shadow = append(op.Shadow, len(d.limits))
		}
		d.named = append(d.named, namedLimit{len(d.limits), r, limits, i})
		d.limit(l.Window, l.Max, []byte(l.Text))
	}
	return d.spend(len(limits) * costNamed)
}

// countDistinctVerdicts counts what was decided about values, if there were limits.
func (s *Server) countDistinctVerdicts(x *requestState, body *distinctBody, res *distinct.Result) {
	if s.opts.Verdicts == nil && s.opts.Decisions == nil || len(body.op.Limits) == 0 {
		return
	}
	run := verdicts.Begin(s.opts.Verdicts, x.door)
	run.RecordTo(s.opts.Decisions)
	run.Values(&body.op, len(body.values), res, func(k int) verdicts.Origin {
		o := x.namedAt(k).origin()
		if o.Rule != nil {
			o.Version = x.inForce.Version()
		}
		return o
	})
	run.End(time.Since(x.began))
}
