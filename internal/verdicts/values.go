package verdicts

import (
	"bytes"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/request"
)

// A document of rules may demand as many limits as an operation may have.
var _ [distinct.MaxLimits]struct{} = [twotier.MaxDistinct]struct{}{}

// Values is an operation that adds different values to a key, or only counts them, with the rules
// that judge it.
type Values struct {
	// Op has the limits spelled out in the request and, after AddRules, those of the rules.
	Op distinct.Op
	// Add lists the values to add; none in a query.
	Add [][]byte
	// Ruled is set once rules were named, even if all of them are off; Version is their version.
	Ruled   bool
	Version int64
	// Texts are windows as the request spelled them: first of its own limits, then of Op.Windows.
	Texts [][]byte
	// Refusal is the id of the refusal, once CountValues has recorded one.
	Refusal refusallog.ID

	of []ruledValues // origins of the last limits of Op
}

// ruledValues is a limit added by a rule.
type ruledValues struct {
	rule   *twotier.Rule
	limits []twotier.RuleLimit // all limits of the rule for the key
	index  int                 // of the limit among them
}

// Mistake is an error in a field of a request.
type Mistake struct{ Field, Detail string }

// WantsDefaults reports whether default rules judge the operation: it adds values now, and names
// neither limits nor, if named is empty, rules.
func (v *Values) WantsDefaults(named []*twotier.Rule) bool {
	return len(v.Add) > 0 && v.Op.TS == 0 && len(v.Op.Limits)+len(named) == 0
}

// AddRules adds the limits of rules, all of one version and one namespace, and puts the key in that
// namespace. It returns the first mistake, if any.
func (v *Values) AddRules(rules []*twotier.Rule, version int64) *Mistake {
	if len(rules) == 0 {
		return nil
	}
	if v.Op.TS != 0 { // even if all rules are off: switching one on must not fail a request
		return &Mistake{"ts", distinct.WantNoTS}
	}
	space := rules[0].NS()
	if v.Op.NS != nil && !bytes.Equal(v.Op.NS, space) {
		return &Mistake{"ns", fmt.Sprintf("rule %s counts in namespace %s; leave ns out",
			rules[0].Name, space)}
	}
	v.Op.NS, v.Ruled, v.Version = space, true, version
	for i, r := range rules {
		if len(r.Distinct) == 0 {
			return &Mistake{fmt.Sprintf("rules[%d]", i), request.OnlyEventsDetail(r.Name)}
		}
		if r.State == twotier.RuleOff {
			continue
		}
		limits := r.DistinctFor(v.Op.Key)
		if len(v.Op.Limits)+len(limits) > distinct.MaxLimits {
			return &Mistake{"rules", fmt.Sprintf("with them there are more than %d limits",
				distinct.MaxLimits)}
		}
		for j, l := range limits {
			if r.State == twotier.RuleShadow {
				v.Op.Shadow = append(v.Op.Shadow, len(v.Op.Limits))
			}
			v.Op.Limits = append(v.Op.Limits, twotier.Limit{Window: l.Window, Max: l.Max})
			v.of = append(v.of, ruledValues{r, limits, j})
		}
	}
	return nil
}

// ruledLimit returns the rule's limit behind limit k, or nil for a limit without a rule.
func (v *Values) ruledLimit(k int) *ruledValues {
	at := k - (len(v.Op.Limits) - len(v.of))
	if at < 0 || at >= len(v.of) {
		return nil
	}
	return &v.of[at]
}

// Limit returns the rule of limit k, and the limit as written in the rule; nil for a limit without
// a rule.
func (v *Values) Limit(k int) (*twotier.Rule, twotier.RuleLimit) {
	if r := v.ruledLimit(k); r != nil {
		return r.rule, r.limits[r.index]
	}
	return nil, twotier.RuleLimit{}
}

// RefusedBy names the limits that refused: limits[0] is the first limit spelled out in the field
// limits of the request, and NAME or NAME/WINDOW a limit of a rule.
func (v *Values) RefusedBy(res *distinct.Result, field string) (names []string) {
	for _, k := range res.Over {
		switch r := v.ruledLimit(k); {
		case slices.Contains(v.Op.Shadow, k):
		case r != nil:
			names = append(names, r.rule.PolicyName(r.limits, r.index))
		default:
			names = append(names, fmt.Sprintf("%s[%d]", field, k))
		}
	}
	return names
}

// Near names the limits of rules that allow, and whose counts have reached the warning level of
// their rule.
func (v *Values) Near(res *distinct.Result) (names []string) {
	own := len(v.Op.Limits) - len(v.of)
	for i, r := range v.of {
		k := own + i
		if k < len(res.Counts) && !slices.Contains(res.Over, k) &&
			r.rule.IsNear(res.Counts[k].Count, r.limits[r.index].Max) {
			names = append(names, r.rule.PolicyName(r.limits, r.index))
		}
	}
	return names
}

// origin returns the origin of limit k.
func (v *Values) origin(k int) Origin {
	r := v.ruledLimit(k)
	switch {
	case r == nil && slices.Contains(v.Op.Shadow, k):
		return Origin{Rule: &twotier.Rule{State: twotier.RuleShadow}, Max: v.Op.Limits[k].Max,
			First: k == 0, Distinct: true}
	case r == nil:
		return Origin{Distinct: true}
	}
	return Origin{Rule: r.rule, Max: r.limits[r.index].Max, First: r.index == 0,
		Version: v.Version, Distinct: true}
}

// CountValues counts the verdicts on an operation on values as one more decision, if it has limits.
func (r *Run) CountValues(v *Values, res *distinct.Result) {
	if len(v.Op.Limits) > 0 {
		r.BeginDecision()
		r.AddValues(v, res)
		v.Refusal = r.RefusalID()
	}
}

// AddValues counts the verdicts on the values of an operation whose decision has begun.
func (r *Run) AddValues(v *Values, res *distinct.Result) {
	if len(v.Op.Limits) == 0 {
		return
	}
	judged := twotier.CheckResult{Refused: !res.Allowed, RetryAfter: res.RetryAfter}
	for k, l := range v.Op.Limits[:min(len(v.Op.Limits), len(res.Counts))] {
		judged.Limits = append(judged.Limits, twotier.LimitResult{Window: l.Window, Max: l.Max,
			Count: res.Counts[k].Count, Refused: slices.Contains(res.Over, k)})
	}
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{NS: v.Op.NS, Key: v.Op.Key,
		N: int64(len(v.Add))}}}
	of := v.origin
	if !res.Allowed && len(v.RefusedBy(res, "")) == 0 {
		of = nil // no limit refused, but the values of the key were unknown
	}
	r.CountCheck(&op, 0, &twotier.Result{Allowed: res.Allowed,
		Checks: []twotier.CheckResult{judged}}, of)
}
