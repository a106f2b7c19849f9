package verdicts

import (
	"bytes"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// A document of rules may demand as many limits as an operation may have.
var _ [request.MaxValueLimits]struct{} = [twotier.MaxDistinct]struct{}{}

// Values are the different values of a key, with the limits and rules that judge them.
type Values struct {
	// NS and Key name the key, as in a twotier.Check.
	NS, Key []byte
	// Add lists the values to add; none in a query.
	Add [][]byte
	// Limits are those that the request spells out, then, after AddRules, those of the rules, and
	// last Windows windows that are only counted. Texts are their windows as spelled.
	Limits  []twotier.Limit
	Texts   [][]byte
	Windows int
	// Shadow lists the positions of limits that are compared but forbid nothing.
	Shadow []int
	// Ruled is set once rules were named, even if all of them are off; Version is their version.
	Ruled   bool
	Version int64

	of []ruledValues // origins of the limits of rules
}

// ruledValues is a limit added by a rule.
type ruledValues struct {
	rule   *twotier.Rule
	limits []twotier.RuleLimit // all limits of the rule for the key
	index  int                 // of the limit among them
}

// Judging returns how many limits judge the values.
func (v *Values) Judging() int { return len(v.Limits) - v.Windows }

// AddRules adds the limits of rules, all of one version and one namespace, and puts the key in that
// namespace. It returns the first mistake, if any.
func (v *Values) AddRules(rules []*twotier.Rule, version int64) *request.Failure {
	if len(rules) == 0 {
		return nil
	}
	space := rules[0].NS()
	if v.NS != nil && !bytes.Equal(v.NS, space) {
		return request.FieldFailure("ns", fmt.Sprintf(
			"rule %s counts in namespace %s; leave ns out", rules[0].Name, space))
	}
	v.NS, v.Ruled, v.Version = space, true, version
	for i, r := range rules {
		if len(r.Distinct) == 0 {
			return request.FieldFailure(fmt.Sprintf("rules[%d]", i),
				request.OnlyEventsDetail(r.Name))
		}
		if r.State == twotier.RuleOff {
			continue
		}
		limits := r.DistinctFor(v.Key)
		if len(v.Limits)+len(limits) > request.MaxValueLimits {
			return request.FieldFailure("rules", fmt.Sprintf(
				"with them there are more than %d limits", request.MaxValueLimits))
		}
		for j, l := range limits {
			if r.State == twotier.RuleShadow {
				v.Shadow = append(v.Shadow, len(v.Limits))
			}
			v.Limits = append(v.Limits, twotier.Limit{Window: l.Window, Max: l.Max})
			v.Texts = append(v.Texts, []byte(l.Text))
			v.of = append(v.of, ruledValues{r, limits, j})
		}
	}
	return nil
}

// ruledLimit returns the rule's limit behind limit k, or nil for a limit without a rule.
func (v *Values) ruledLimit(k int) *ruledValues {
	at := k - (v.Judging() - len(v.of))
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
func (v *Values) RefusedBy(judged *twotier.CheckResult, field string) (names []string) {
	for k := range judged.Limits {
		switch r := v.ruledLimit(k); {
		case !judged.Limits[k].Refused || slices.Contains(v.Shadow, k):
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
func (v *Values) Near(judged *twotier.CheckResult) (names []string) {
	for k := range judged.Limits {
		l, r := &judged.Limits[k], v.ruledLimit(k)
		if r != nil && !l.Refused && r.rule.IsNear(l.Count, r.limits[r.index].Max) {
			names = append(names, r.rule.PolicyName(r.limits, r.index))
		}
	}
	return names
}

// origin returns the origin of limit k.
func (v *Values) origin(k int) Origin {
	r := v.ruledLimit(k)
	switch {
	case r == nil && slices.Contains(v.Shadow, k):
		return Origin{Rule: &twotier.Rule{State: twotier.RuleShadow}, Max: v.Limits[k].Max,
			First: k == 0, Distinct: true}
	case r == nil:
		return Origin{Distinct: true}
	}
	return Origin{Rule: r.rule, Max: r.limits[r.index].Max, First: r.index == 0,
		Version: v.Version, Distinct: true}
}

// AddValues counts the verdicts on the values of an operation whose decision has begun.
func (r *Run) AddValues(v *Values, judged *twotier.CheckResult) {
	if v.Judging() == 0 {
		return
	}
	res := twotier.CheckResult{Refused: judged.Refused, RetryAfter: judged.RetryAfter}
	for k := range judged.Limits[:min(v.Judging(), len(judged.Limits))] {
		l := &judged.Limits[k]
		res.Limits = append(res.Limits, twotier.LimitResult{Window: l.Window, Max: l.Max,
			Count: l.Count, Refused: l.Refused}) // an estimate lends nothing
	}
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{NS: v.NS, Key: v.Key,
		N: int64(len(v.Add))}}}
	of := v.origin
	if judged.Refused && len(v.RefusedBy(judged, "")) == 0 {
		of = nil // no limit refused, but the values of the key were unknown
	}
	r.CountCheck(&op, 0, &twotier.Result{Allowed: !judged.Refused,
		Checks: []twotier.CheckResult{res}}, of)
}
