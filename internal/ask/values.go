package ask

import (
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// checkValues are the values of a check with this index in Request.checks. They are alone if the
// operation is about nothing else.
type checkValues struct {
	check int
	alone bool
	verdicts.Values
}

// AddValues makes the check in progress add values.
func (r *Request) AddValues(values [][]byte) { r.adding.Add = values }

// LimitValues adds a limit on values, whose window is spelled text, to the check in progress.
func (r *Request) LimitValues(l twotier.Limit, text []byte) {
	r.adding.Limits, r.adding.Texts = append(r.adding.Limits, l), append(r.adding.Texts, text)
}

// ValuesInProgress returns the values of the check in progress, with the limits that it has so far.
func (r *Request) ValuesInProgress() *verdicts.Values { return &r.adding }

// prepareValues gives the values of a check the limits of the rules that judge them.
func (r *Request) prepareValues(c *twotier.Check) *request.Failure {
	v := &r.adding
	v.NS, v.Key = c.NS, c.Key
	own := len(v.Limits)
	if own > request.MaxValueLimits { // before the rules
		return request.FieldFailure("value_limits",
			fmt.Sprintf("want at most %d limits", request.MaxValueLimits))
	}
	if len(v.Add) == 0 && own > 0 {
		return request.FieldFailure("values", "missing; value_limits judge what is added")
	}
	if len(v.Add) == 0 {
		return nil
	}
	judging := slices.DeleteFunc(slices.Clone(r.naming), func(rule *twotier.Rule) bool {
		return len(rule.Distinct) == 0
	})
	if f := v.AddRules(judging, r.RulesVersion()); f != nil {
		return f
	}
	if own == 0 && !v.Ruled {
		return request.FieldFailure("value_limits", "missing; values need at least one, or a rule "+
			"with distinct")
	}
	r.shadowValues(own)
	return nil
}

// shadowValues puts the first limits on values of the check in progress into shadow if its
// namespace is.
func (r *Request) shadowValues(own int) {
	for k := 0; k < own && r.Shadow.In(r.adding.NS); k++ {
		r.adding.Shadow = append(r.adding.Shadow, k)
	}
}

// endValues adds the values of the check in progress. A check without limits on events counts none.
func (r *Request) endValues(c *twotier.Check) {
	r.values = append(r.values, checkValues{len(r.checks), false, r.adding})
	if len(r.limits) == r.start {
		c.N = 0
	}
}

// addsValues reports whether a check of the operation in progress adds values.
func (r *Request) addsValues() bool {
	n := len(r.values)
	return n > 0 && r.values[n-1].check >= r.op.checks
}

// CheckValues returns why the operation in progress can't add values together with its other
// fields.
func (r *Request) CheckValues(op *twotier.Op) *request.Failure {
	field := ""
	switch {
	case !r.addsValues():
		return nil
	case r.charges:
		return request.FieldFailure("rules", "a rule with charge can't judge values")
	case op.Hold != 0:
		field = "hold"
	case op.TS != 0:
		field = "ts"
	case op.CountDenied:
		field = "count_denied"
	case op.Charge:
		field = "charge"
	default:
		return nil
	}
	return request.FieldFailure(field, "an acquire with values can't have it")
}

// linkValues gives each operation the values of its checks.
func (r *Request) linkValues() {
	of, next := make([]twotier.ValuesOf, len(r.values)), 0
	for i, f := range r.forms {
		from := next
		for ; next < len(of) && r.values[next].check < f.first+f.count; next++ {
			v := &r.values[next]
			of[next] = twotier.ValuesOf{Check: v.check - f.first, Values: v.Add,
				Limits: v.Limits, Shadow: v.Shadow}
		}
		r.Ops[i].Values = of[from:next:next]
	}
}

// ValuesOf returns the values of check j of operation i, which had this result, and their outcome;
// nil if the check has none.
func (r *Request) ValuesOf(i, j int, res *twotier.Result) (*verdicts.Values, *twotier.CheckResult) {
	for k := range min(len(r.Ops[i].Values), len(res.Values)) {
		if r.Ops[i].Values[k].Check == j {
			return &r.checkValues(i, j).Values, &res.Values[k]
		}
	}
	return nil, nil
}

// checkValues returns the values of check j of operation i, or nil if it has none.
func (r *Request) checkValues(i, j int) *checkValues {
	at, ok := slices.BinarySearchFunc(r.values, r.forms[i].first+j,
		func(v checkValues, check int) int { return v.check - check })
	if !ok {
		return nil
	}
	return &r.values[at]
}
