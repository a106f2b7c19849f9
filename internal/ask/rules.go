package ask

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// MaxRules bounds the rules of one check.
const MaxRules = 16

// Words are an endpoint's words in error messages.
type Words struct {
	NS     string // how a request spells the namespace
	Limits string // what an acquire needs at least one of
	Parts  string // what two rules of different namespaces can be named in
}

// words returns the words of the endpoint.
func (r *Request) words() Words {
	if r.Words == (Words{}) {
		return Words{NS: "ns", Limits: "limit, or rules", Parts: "checks or requests"}
	}
	return r.Words
}

// ruledLimit is a limit of a rule.
type ruledLimit struct {
	verdicts.Ruled
	at int // its index in Request.limits
}

// ResolveRules fixes the rules in force for the rest of the request, and returns them.
func (r *Request) ResolveRules() (*twotier.RuleSet, *request.Failure) {
	if r.inForce == nil && r.Rules != nil {
		if r.inForce = r.Rules.Rules(); r.inForce == nil {
			return nil, request.RulesUnknownFailure()
		}
	}
	return r.inForce, nil
}

// RulesVersion returns the version of the rules that the request was resolved in.
func (r *Request) RulesVersion() int64 { return r.inForce.Version() }

// FindRule returns the rule of that name.
func (r *Request) FindRule(name []byte) (*twotier.Rule, *request.Failure) {
	set, f := r.ResolveRules()
	if f != nil {
		return nil, f
	}
	return FindRule(set, r.Grant, name)
}

// FindRule returns the rule of that name in a set. A rule of a namespace that a grant does not
// cover is none: the answer must not reveal which rules others have. A nil grant covers all.
func FindRule(set *twotier.RuleSet, g *twotier.Grant,
	name []byte) (*twotier.Rule, *request.Failure) {
	limited := g != nil && !g.AllNamespaces()
	if rule := set.Find(name); rule != nil && (!limited || g.HasNamespace(rule.NS())) {
		return rule, nil
	}
	detail := `there is no rule "` + request.Clip(name) + `"`
	if limited {
		detail += " in the namespaces of the token " + g.Name()
	}
	return nil, request.FieldFailure("", detail)
}

// AddNamedRule makes the rule of that name judge the check in progress. EndCheck adds its limits,
// which depend on the key.
func (r *Request) AddNamedRule(name []byte) *request.Failure {
	rule, f := r.FindRule(name)
	if f != nil {
		return f
	}
	if len(r.naming) == MaxRules {
		return request.FieldFailure("", fmt.Sprintf("want at most %d rules", MaxRules))
	}
	if len(r.naming) > 0 && r.naming[0].Space() != rule.Space() {
		return request.FieldFailure("", fmt.Sprintf(
			"rule %s counts in namespace %s and rule %s in %s; "+
				"name them in different %s", r.naming[0].Name, r.naming[0].Space(), rule.Name,
			rule.Space(), r.words().Parts))
	}
	r.AddRule(rule)
	return nil
}

// AddRule makes a rule judge the check in progress. All rules of a check count in one namespace.
func (r *Request) AddRule(rule *twotier.Rule) { r.naming = append(r.naming, rule) }

// NamesRules reports whether rules judge the check in progress.
func (r *Request) NamesRules() bool { return len(r.naming) > 0 }

// findRuleLimits finds the limits for the check's key of the rules that the check names, or of the
// default rules of its namespace if it names none. The check then counts in the namespace of the
// rules.
func (r *Request) findRuleLimits(c *twotier.Check, kind twotier.Kind) (limits, bans int,
	f *request.Failure) {
	if len(r.naming) == 0 {
		set, f := r.ResolveRules()
		if f != nil {
			return 0, 0, f
		}
		r.naming = append(r.naming, set.Defaults(c.NS)...)
		if len(r.adding.add) > 0 {
			for _, rule := range set.DistinctDefaults(c.NS) {
				if !rule.JudgesEvents() { // otherwise it is among the others
					r.naming = append(r.naming, rule)
				}
			}
		}
	}
	if f = r.enterSpace(c, r.words().NS); f != nil {
		return 0, 0, f
	}
	for i, rule := range r.naming {
		if !rule.JudgesEvents() && (len(r.adding.add) == 0 || kind != twotier.Acquire) {
			return 0, 0, request.FieldFailure(fmt.Sprintf("rules[%d]", i),
				request.OnlyDistinctDetail(rule.Name))
		}
		found := rule.For(c.Key)
		r.found = append(r.found, found)
		limits += len(found)
		if kind == twotier.Acquire && rule.Bans() {
			bans++
		}
		r.charge, r.charges = r.charge || rule.Charges(), r.charges || rule.Charge
	}
	return limits, bans, nil
}

// enterSpace puts a check into the namespace of the rules that judge it, if any do. word is how a
// request spells the namespace.
func (r *Request) enterSpace(c *twotier.Check, word string) *request.Failure {
	if len(r.naming) == 0 {
		return nil
	}
	if space := r.naming[0].NS(); c.NS == nil {
		c.NS = space
	} else if !bytes.Equal(c.NS, space) {
		return request.FieldFailure("ns", fmt.Sprintf(
			"rule %s counts in namespace %s; leave %s out", r.naming[0].Name, space, word))
	}
	return nil
}

// addRuleLimits adds the limits that findRuleLimits has found.
func (r *Request) addRuleLimits(kind twotier.Kind) {
	for i, limits := range r.found {
		rule, from := r.naming[i], len(r.limits)-r.start
		r.warns = r.warns || rule.Warn > 0
		r.addLimits(rule, limits, false)
		if rule.Concurrent > 0 && kind == twotier.Acquire && rule.State != twotier.RuleOff {
			r.limited = append(r.limited, twotier.Lease{Max: rule.Concurrent, Rule: rule.Name,
				Shadow: rule.State == twotier.RuleShadow})
		}
		if rule.Bans() && kind == twotier.Acquire {
			r.bans = append(r.bans, twotier.BanRule{Check: len(r.checks), Rule: rule.Name,
				Window: rule.Ban, From: from, To: len(r.limits) - r.start})
		}
	}
}

// addLimits adds limits of a rule on events or, if distinct, on values. The maximum of a limit on
// values is that of the rule also in shadow: twotier.ValuesOf lists the limits in shadow.
func (r *Request) addLimits(rule *twotier.Rule, limits []twotier.RuleLimit, distinct bool) {
	for k, l := range limits {
		r.ruled = append(r.ruled, ruledLimit{verdicts.Ruled{Rule: rule, Limits: limits, Index: k,
			Version: r.inForce.Version(), Distinct: distinct}, len(r.limits)})
		most := l.Max
		if !distinct {
			most = rule.Enforced(l)
		}
		r.AddLimit(twotier.Limit{Window: l.Window, Max: most, Period: l.Period}, nil)
	}
}

// linkBans gives each operation the banning rules of its checks.
func (r *Request) linkBans() {
	next := 0
	for i, f := range r.forms {
		from := next
		for ; next < len(r.bans) && r.bans[next].Check < f.first+f.count; next++ {
			r.bans[next].Check -= f.first
		}
		if next > from {
			r.Ops[i].Rules = r.bans[from:next:next]
		}
	}
}

// RuleOf returns the rule and limit behind limit k of check j of operation i, or nil if there is
// none.
func (r *Request) RuleOf(i, j, k int) *verdicts.Ruled {
	if n, ok := r.seekRuled(r.limitAt(i, j) + k); ok {
		return &r.ruled[n].Ruled
	}
	return nil
}

// isNamed reports whether the rule is one of the document, not the one that stands for limits of
// the request in shadow.
func (l *ruledLimit) isNamed() bool { return l.Rule.Name != "" }

// IsInShadow reports whether the limits that the request gives a check of an operation of this kind
// are in shadow.
func (r *Request) IsInShadow(c *twotier.Check, kind twotier.Kind) bool {
	return kind == twotier.Acquire && r.Shadow.In(c.NS) && !twotier.IsImported(c.NS)
}

// shadowLimits turns the limits of the check in progress, from this one on, into limits of a rule
// without a name that is in shadow.
func (r *Request) shadowLimits(from int, distinct bool) {
	rule := &twotier.Rule{State: twotier.RuleShadow}
	for k, l := range r.limits[from:] {
		if !distinct {
			l.Max = l.Bound()
		}
		rule.Limits = append(rule.Limits, twotier.RuleLimit{Window: l.Window, Max: l.Max,
			Period: l.Period, Text: string(r.texts[from+k])})
	}
	r.limits, r.texts = r.limits[:from], r.texts[:from]
	r.addLimits(rule, rule.Limits, distinct)
}

// HasNamedRules reports whether rules of the document judge the request so far.
func (r *Request) HasNamedRules() bool {
	return slices.ContainsFunc(r.ruled, func(l ruledLimit) bool { return l.isNamed() }) ||
		slices.ContainsFunc(r.values, func(v checkValues) bool { return v.ruled })
}

// IsRuled reports whether rules of the document judged operation i.
func (r *Request) IsRuled(i int) bool {
	for _, of := range r.Ops[i].Values {
		if r.checkValues(i, of.Check).ruled {
			return true
		}
	}
	if len(r.ruled) == 0 {
		return false
	}
	f, end := r.forms[i], len(r.limits)
	if next := f.first + f.count; next < len(r.starts) {
		end = r.starts[next]
	}
	from, _ := r.seekRuled(r.starts[f.first])
	to, _ := r.seekRuled(end)
	return slices.ContainsFunc(r.ruled[from:to], func(l ruledLimit) bool { return l.isNamed() })
}

// Refuses reports whether limit k of check j of operation i refuses with this result: one in shadow
// does not.
func (r *Request) Refuses(i, j, k int, l *twotier.LimitResult) bool {
	return l.Refused && !r.RuleOf(i, j, k).IsInShadow()
}

// AppendLimitName appends the name of limit k of check j of operation i: that of a rule's policy,
// or the field of the request.
func (r *Request) AppendLimitName(b []byte, i, j, k int) []byte {
	if of := r.RuleOf(i, j, k); of != nil {
		return append(b, of.Policy()...)
	}
	if events := len(r.Ops[i].Checks[j].Limits); k >= events {
		if k -= events; !r.checkValues(i, j).alone {
			b = append(b, "value_"...)
		}
	}
	return append(strconv.AppendInt(append(b, "limits["...), int64(k), 10), ']')
}

// seekRuled returns the index in r.ruled of the limit with this index, or where it would be.
func (r *Request) seekRuled(limit int) (n int, ok bool) {
	return slices.BinarySearchFunc(r.ruled, limit, func(l ruledLimit, at int) int {
		return l.at - at
	})
}
