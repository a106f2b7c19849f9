package resp

import (
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// maxRules bounds the rules that one check names, maxRuled the limits that rules add to one
// command: a short name can stand for many of them.
const (
	maxRules = 16
	maxRuled = 64
)

// ruledLimit is a limit that a rule added.
type ruledLimit struct {
	at int // its index in work.limits
	verdicts.Origin
}

// rule reads the name of a rule.
func (d *draft) rule() errorReply {
	if len(d.args) == 0 {
		return d.refused("rules", "want RULE and a name")
	}
	name := d.args[0]
	d.args = d.args[1:]
	if e := d.takeRules(); e != "" {
		return e
	}
	switch r := d.inForce.Find(name); {
	case r == nil:
		return d.refused("rules", `there is no rule "`+clip(name)+`"`)
	case len(d.w.naming) == maxRules:
		return d.refused("rules", fmt.Sprintf("want at most %d rules", maxRules))
	case len(d.w.naming) > 0 && d.w.naming[0].Space() != r.Space():
		return d.refused("rules", fmt.Sprintf("rule %s counts in namespace %s and rule %s in %s; "+
			"name them in different checks or commands", d.w.naming[0].Name,
			d.w.naming[0].Space(), r.Name, r.Space()))
	default:
		d.w.naming = append(d.w.naming, r)
	}
	return ""
}

// takeRules fixes the rules in force for the whole command.
func (d *draft) takeRules() errorReply {
	if d.inForce != nil || d.w.rules == nil {
		return ""
	}
	if d.inForce = d.w.rules.Rules(); d.inForce == nil {
		return errorf(codeTryAgain, "%s; nothing was counted; retry_after_ms=%d",
			request.RulesUnknown().Detail, leastRetry)
	}
	return ""
}

// addRules adds the limits of the rules that the check names, or of the default rules of its
// namespace if an acquire has neither rules nor limits.
func (d *draft) addRules() errorReply {
	if d.op.Kind != twotier.Acquire {
		return ""
	}
	if len(d.w.naming) == 0 && len(d.w.limits) == d.start {
		if e := d.takeRules(); e != "" {
			return e
		}
		d.w.naming = append(d.w.naming, d.inForce.Defaults(d.check.NS)...)
	}
	if e := d.space(); e != "" {
		return e
	}
	for _, r := range d.w.naming {
		if len(r.Limits) == 0 {
			return d.refused("rules", request.OnlyDistinct(r.Name))
		}
		from := len(d.w.limits) - d.start
		for i, l := range r.For(d.check.Key) {
			d.w.ruled = append(d.w.ruled, ruledLimit{len(d.w.limits),
				verdicts.Origin{Rule: r, Max: l.Max, First: i == 0,
					Version: d.inForce.Version()}})
			d.w.limits = append(d.w.limits, twotier.Limit{Window: l.Window, Max: r.Enforced(l)})
			if d.ruled++; d.ruled > maxRuled {
				return d.refused("rules",
					fmt.Sprintf("they have more than %d limits in one command", maxRuled))
			}
		}
		if r.Bans() {
			d.w.bans = append(d.w.bans, twotier.BanRule{Check: len(d.w.checks), Rule: r.Name,
				Window: r.Ban, From: from, To: len(d.w.limits) - d.start})
		}
	}
	return ""
}

// space makes the check count in the space of the rules that it names, if any.
func (d *draft) space() errorReply {
	if len(d.w.naming) == 0 {
		return ""
	}
	space := d.w.naming[0].Space()
	if d.check.NS != nil && string(d.check.NS) != space {
		return d.refused("ns", fmt.Sprintf("rule %s counts in namespace %s; leave NS out",
			d.w.naming[0].Name, space))
	}
	d.check.NS = []byte(space)
	return ""
}

// ruleOf returns the origin of limit k of check j of operation i, or nil if no rule added it.
func (w *work) ruleOf(i, j, k int) *ruledLimit {
	if len(w.ruled) == 0 {
		return nil
	}
	at, ok := slices.BinarySearchFunc(w.ruled, w.starts[w.forms[i].first+j]+k,
		func(l ruledLimit, at int) int { return l.at - at })
	if !ok {
		return nil
	}
	return &w.ruled[at]
}

// off returns how many limits of check j of operation i belong to rules that are off.
func (w *work) off(i, j int) (n int) {
	if len(w.ruled) == 0 {
		return 0
	}
	for k := range w.ops[i].Checks[j].Limits {
		if r := w.ruleOf(i, j, k); r != nil && r.Rule.State == twotier.RuleOff {
			n++
		}
	}
	return n
}

// origins returns the origins of the limits of check j of operation i, or nil if no rule judged the
// command.
func (w *work) origins(i, j int) func(k int) verdicts.Origin {
	if len(w.ruled) == 0 {
		return nil
	}
	return func(k int) verdicts.Origin {
		if l := w.ruleOf(i, j, k); l != nil {
			return l.Origin
		}
		return verdicts.Origin{}
	}
}
