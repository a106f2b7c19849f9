package ask

import (
	"errors"
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

// MoveWindows turns the limits of the check in progress from this one on into windows in which the
// different values of its key are only counted.
func (r *Request) MoveWindows(from int) {
	r.windows = append(r.windows, r.limits[r.start+from:]...)
	r.spelled = append(r.spelled, r.texts[r.start+from:]...)
	r.limits, r.texts = r.limits[:r.start+from], r.texts[:r.start+from]
}

// HasWindows reports whether the check in progress has windows in which values are counted.
func (r *Request) HasWindows() bool { return len(r.windows) > 0 }

// EndDistinct adds the operation in progress, which is about the different values of a key alone:
// an Add or, with limits, an Acquire of values, or a Count without any. The limits and the rules of
// its check judge the values. The tag is for the endpoint, see [Request.Tag].
func (r *Request) EndDistinct(op *twotier.Op, c *twotier.Check, tag uint8) *request.Failure {
	v := &r.adding
	v.NS, v.Key = c.NS, c.Key
	own := r.LimitCount()
	v.Limits = append(v.Limits, r.limits[r.start:]...)
	v.Texts = append(v.Texts, r.texts[r.start:]...)
	r.limits, r.texts = r.limits[:r.start], r.texts[:r.start]
	if f := r.checkDistinct(op); f != nil {
		return f
	}
	if f := r.addDistinctRules(op); f != nil {
		return f
	}
	r.shadowValues(own)
	switch {
	case len(v.Add) == 0:
		op.Kind = twotier.Count
	case len(v.Limits) == 0:
		op.Kind = twotier.Add
	default:
		op.Kind = twotier.Acquire
	}
	if f := CheckGrant(r.Grant, roleOf(op.Kind), v.NS); f != nil {
		return f
	}
	for _, w := range r.windows {
		v.Limits = append(v.Limits, twotier.Limit{Window: w.Window, Max: twotier.MaxBound})
	}
	v.Texts, v.Windows = append(v.Texts, r.spelled...), len(r.windows)
	r.values = append(r.values, checkValues{len(r.checks), true, *v})
	r.checks = append(r.checks, twotier.Check{NS: v.NS, Key: v.Key})
	r.starts = append(r.starts, r.start)
	r.EndOp(op, tag)
	return nil
}

// checkDistinct returns why the check in progress can't be one of values alone.
func (r *Request) checkDistinct(op *twotier.Op) *request.Failure {
	const want = `distinct values have no calendar windows; want a duration such as "24h"`
	for i := range r.adding.Limits {
		if r.adding.Limits[i].Period != nil {
			return request.FieldFailure(fmt.Sprintf("limits[%d].window", i), want)
		}
	}
	for i := range r.windows {
		if r.windows[i].Period != nil {
			return request.FieldFailure("window", want)
		}
	}
	switch {
	case len(r.adding.Add)+len(r.windows) == 0:
		return request.FieldFailure("window", "missing; "+request.WantWindow)
	case len(r.limited) > 0:
		return request.FieldFailure("limits", wantNoLeases)
	case op.TS != 0 && len(r.adding.Limits)+len(r.naming) > 0:
		// Even if all rules are off: switching one on must not fail a request.
		return request.FieldFailure("ts", "limits and rules are about the present; want them "+
			"without ts")
	}
	return nil
}

// addDistinctRules adds the limits of the rules that the check in progress names. The default rules
// of its namespace judge values that are added now without limits and rules.
func (r *Request) addDistinctRules(op *twotier.Op) *request.Failure {
	v := &r.adding
	if len(v.Add) > 0 && op.TS == 0 && len(v.Limits)+len(r.naming) == 0 {
		set, f := r.ResolveRules()
		if f != nil {
			return f
		}
		r.naming = append(r.naming, set.DistinctDefaults(v.NS)...)
	}
	return v.AddRules(r.naming, r.RulesVersion())
}

// errUnjudged is the error of values that were refused without a limit.
var errUnjudged = fmt.Errorf("%w: the store can't be asked for the key's values, and on-cold is "+
	"deny", twotier.ErrUnavailable)

// FailUnjudged gives operations about values alone an error if they were refused without a limit:
// their answers name limits only.
func (r *Request) FailUnjudged() {
	for i := range r.Ops {
		res := &r.results[i]
		v, judged := r.ValuesOf(i, 0, res)
		if v != nil && r.checkValues(i, 0).alone && res.Err == nil && !res.Allowed &&
			len(v.RefusedBy(judged, "")) == 0 {
			res.Err = errUnjudged
		}
	}
}

// FailureOfOp converts the error of operation i. Unless checksForm is set, it names the fields of
// the only check as if they were the operation's own. The limits of an operation about values alone
// are on them, and those behind them are windows.
func (r *Request) FailureOfOp(i int, err error, checksForm bool) request.Failure {
	op := &r.Ops[i]
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if ok && len(op.Values) > 0 {
		if v := r.checkValues(i, op.Values[0].Check); v.alone {
			named := *invalid
			if named.OfValues = false; named.Limit >= v.Judging() {
				named.Limit = -1
			}
			err = &named
		}
	}
	return request.FailureOfOp(err, op, checksForm)
}
