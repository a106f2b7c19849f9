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

	of []Ruled // the limits of rules
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
			v.of = append(v.of, Ruled{r, limits, j, version})
		}
	}
	return nil
}

// Limit returns the rule's limit behind limit k, or nil for a limit without a rule.
func (v *Values) Limit(k int) *Ruled {
	at := k - (v.Judging() - len(v.of))
	if at < 0 || at >= len(v.of) {
		return nil
	}
	return &v.of[at]
}

// RefusedBy names the limits that refused: limits[0] is the first limit spelled out in the field
// limits of the request, and NAME or NAME/WINDOW a limit of a rule.
func (v *Values) RefusedBy(judged *twotier.CheckResult, field string) (names []string) {
	for k := range judged.Limits {
		switch r := v.Limit(k); {
		case !judged.Limits[k].Refused || slices.Contains(v.Shadow, k):
		case r != nil:
			names = append(names, r.Policy())
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
		l, r := &judged.Limits[k], v.Limit(k)
		if r != nil && !l.Refused && r.Rule.IsNear(l.Count, r.Limit().Max) {
			names = append(names, r.Policy())
		}
	}
	return names
}

// origin returns the origin of limit k.
func (v *Values) origin(k int) (o Origin) {
	if r := v.Limit(k); r != nil {
		o = r.Origin()
	} else if slices.Contains(v.Shadow, k) {
		o = Origin{Rule: &twotier.Rule{State: twotier.RuleShadow}, Max: v.Limits[k].Max,
			First: k == 0}
	}
	o.Distinct = true
	return o
}

// CountValues counts the verdicts on the values of the current check.
func (r *Run) CountValues(v *Values, judged *twotier.CheckResult) {
	if v.Judging() == 0 {
		return
	}
	r.counted = r.counted[:0]
	for k := range judged.Limits[:min(v.Judging(), len(judged.Limits))] {
		l := &judged.Limits[k]
		r.counted = append(r.counted, twotier.LimitResult{Window: l.Window, Max: l.Max,
			Count: l.Count, Refused: l.Refused}) // an estimate lends nothing
	}
	s := Subject{NS: v.NS, Key: v.Key, N: int64(len(v.Add)), Limits: r.counted,
		RetryAfter: judged.RetryAfter, of: v.origin, res: &r.none}
	if judged.Refused && len(v.RefusedBy(judged, "")) == 0 { // the values were unknown
		r.count(&s, Origin{}, twotier.Refused, 0, len(s.Limits))
		return
	}
	r.countRules(&s)
}
