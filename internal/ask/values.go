package ask

import (
	"errors"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// A document of rules may demand as many limits as an operation may have.
var _ [request.MaxValueLimits]struct{} = [twotier.MaxDistinct]struct{}{}

// checkValues are the values of a check.
type checkValues struct {
	check   int  // its index in Request.checks
	alone   bool // the operation is about nothing else
	ruled   bool // rules judge the values, even if all of them are off
	windows int  // how many of the limits, the last ones, are only counted
	add     [][]byte
	// limits is the number of limits on the values, and unruled the number of those without a rule.
	// They follow the limits on events in Request.limits.
	limits, unruled int
}

// Values is the outcome of the values of a check. A nil Result is of a check without any.
type Values struct {
	// First is the position of the first limit on values among the limits of the check, see RuleOf
	// and WindowText: limits on values follow limits on events.
	First int
	// Judged are the limits that judge the values, and Counted the windows behind them.
	Judged, Counted []twotier.LimitResult
	Result          *twotier.CheckResult
}

// AddValues makes the check in progress add values.
func (r *Request) AddValues(values [][]byte) { r.adding.add = values }

// LimitValues adds a limit on values, whose window is spelled text, to the check in progress.
func (r *Request) LimitValues(l twotier.Limit, text []byte) {
	r.aside, r.texted = append(r.aside, l), append(r.texted, text)
}

// MoveWindows turns the limits of the check in progress from this one on into windows in which the
// different values of its key are only counted.
func (r *Request) MoveWindows(from int) {
	from += r.start
	for _, l := range r.limits[from:] {
		l.Max = twotier.MaxBound
		r.aside = append(r.aside, l)
	}
	r.texted = append(r.texted, r.texts[from:]...)
	r.limits, r.texts = r.limits[:from], r.texts[:from]
}

// ValuesInProgress returns how many values the check in progress adds, and how many limits of the
// request on them, or windows, it has so far.
func (r *Request) ValuesInProgress() (values, limits int) {
	return len(r.adding.add), len(r.aside)
}

// ValuesSize returns how many values the last check adds, and how many limits and windows they
// have, including those of rules.
func (r *Request) ValuesSize() (values, limits int) {
	if n := len(r.values); n > 0 && r.values[n-1].check == len(r.checks)-1 {
		values, limits = len(r.values[n-1].add), r.values[n-1].limits
	}
	return values, limits
}

// prepareValues finds the limits of the rules that judge the values of a check.
func (r *Request) prepareValues(c *twotier.Check) *request.Failure {
	switch own := len(r.aside); {
	case own > request.MaxValueLimits: // before the rules
		return request.FieldFailure("value_limits",
			fmt.Sprintf("want at most %d limits", request.MaxValueLimits))
	case len(r.adding.add) > 0:
		if f := r.findValueLimits(c, own); f != nil {
			return f
		}
		if own == 0 && !r.adding.ruled {
			return request.FieldFailure("value_limits", "missing; values need at least one, or a "+
				"rule with distinct")
		}
	case own > 0:
		return request.FieldFailure("values", "missing; value_limits judge what is added")
	}
	return nil
}

// findValueLimits counts the limits on values of the rules that judge the check in progress, which
// has so many itself.
func (r *Request) findValueLimits(c *twotier.Check, own int) *request.Failure {
	for i, rule := range r.naming {
		if r.adding.alone && len(rule.Distinct) == 0 {
			return request.FieldFailure(fmt.Sprintf("rules[%d]", i),
				request.OnlyEventsDetail(rule.Name))
		}
		r.adding.ruled = r.adding.ruled || len(rule.Distinct) > 0
		if rule.State != twotier.RuleOff {
			r.adding.limits += len(rule.DistinctFor(c.Key))
		}
		if own+r.adding.limits > request.MaxValueLimits {
			return request.FieldFailure("rules", fmt.Sprintf(
				"with them there are more than %d limits", request.MaxValueLimits))
		}
	}
	return nil
}

// endValues adds the values of the check in progress, whose limits begin with this one.
func (r *Request) endValues(c *twotier.Check, from int) {
	ruled := len(r.ruled)
	if !r.adding.alone {
		r.addAside()
	}
	if len(r.limits) > from && r.Shadow.In(c.NS) {
		r.shadowLimits(from, true)
	}
	for _, rule := range r.naming {
		r.warns = r.warns || rule.Warn > 0
		if rule.State != twotier.RuleOff {
			r.addLimits(rule, rule.DistinctFor(c.Key), true)
		}
	}
	v := r.adding
	if v.alone {
		v.windows = len(r.aside)
		r.addAside()
	}
	v.check, v.limits = len(r.checks), len(r.limits)-from
	v.unruled = v.limits - (len(r.ruled) - ruled)
	r.values = append(r.values, v)
}

// addAside adds the limits that were kept aside.
func (r *Request) addAside() {
	r.limits, r.texts = append(r.limits, r.aside...), append(r.texts, r.texted...)
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

// linkValues gives each operation the values of its checks, with their limits, which follow the
// limits on events of each check.
func (r *Request) linkValues() {
	of, next := make([]twotier.ValuesOf, len(r.values)), 0
	for i, f := range r.forms {
		from := next
		for ; next < len(of) && r.values[next].check < f.first+f.count; next++ {
			v := &r.values[next]
			c, o := &r.checks[v.check], &of[next]
			events := len(c.Limits) - v.limits
			*o = twotier.ValuesOf{Check: v.check - f.first, Values: v.add,
				Limits: c.Limits[events:]}
			c.Limits = c.Limits[:events:events]
			for k := range o.Limits {
				if r.RuleOf(i, o.Check, events+k).IsInShadow() {
					o.Shadow = append(o.Shadow, k)
				}
			}
		}
		r.Ops[i].Values = of[from:next:next]
	}
}

// ValuesOf returns the outcome of the values of check j of operation i, which had this result.
func (r *Request) ValuesOf(i, j int, res *twotier.Result) (v Values) {
	for k := range min(len(r.Ops[i].Values), len(res.Values)) {
		if r.Ops[i].Values[k].Check != j {
			continue
		}
		of := r.checkValues(i, j)
		v.First, v.Result = len(r.Ops[i].Checks[j].Limits), &res.Values[k]
		all := v.Result.Limits[:min(of.limits, len(v.Result.Limits))] // another node's may be short
		judging := min(of.limits-of.windows, len(all))
		v.Judged, v.Counted = all[:judging], all[judging:]
	}
	return v
}

// checkValues returns the values of check j of operation i, which has some.
func (r *Request) checkValues(i, j int) *checkValues {
	at, _ := slices.BinarySearchFunc(r.values, r.forms[i].first+j,
		func(v checkValues, check int) int { return v.check - check })
	return &r.values[at]
}

// countValues counts the verdicts on the values of check j of operation i.
func (r *Request) countValues(i, j int, v Values) {
	of := r.checkValues(i, j)
	if of.limits == of.windows {
		return
	}
	judged := *v.Result
	judged.Limits = v.Judged
	r.run.CountValues(&r.Ops[i].Checks[j], len(of.add), &judged, func(k int) *verdicts.Ruled {
		return r.RuleOf(i, j, v.First+k)
	})
}

// EndDistinct adds the operation in progress, which is about the different values of a key alone:
// an Add or, with limits, an Acquire of values, or a Count without any. The limits and the rules of
// its check judge the values. The tag is for the endpoint, see [Request.Tag].
func (r *Request) EndDistinct(op *twotier.Op, c *twotier.Check, tag uint8) *request.Failure {
	own := r.LimitCount()
	r.adding.alone = true
	if f := r.checkDistinct(op, own); f != nil {
		return f
	}
	if f := r.findDistinctRules(op, c, own); f != nil {
		return f
	}
	switch {
	case len(r.adding.add) == 0:
		op.Kind = twotier.Count
	case own+r.adding.limits == 0:
		op.Kind = twotier.Add
	default:
		op.Kind = twotier.Acquire
	}
	if f := CheckGrant(r.Grant, roleOf(op.Kind), c.NS); f != nil {
		return f
	}
	c.N = 0
	r.endValues(c, r.start)
	r.checks, r.starts = append(r.checks, *c), append(r.starts, r.start)
	r.EndOp(op, tag)
	return nil
}

// checkDistinct returns why the check in progress can't be one of values alone.
func (r *Request) checkDistinct(op *twotier.Op, own int) *request.Failure {
	const want = `distinct values have no calendar windows; want a duration such as "24h"`
	isPeriod := func(l twotier.Limit) bool { return l.Period != nil }
	if i := slices.IndexFunc(r.limits[r.start:], isPeriod); i >= 0 {
		return request.FieldFailure(fmt.Sprintf("limits[%d].window", i), want)
	}
	switch {
	case slices.ContainsFunc(r.aside, isPeriod):
		return request.FieldFailure("window", want)
	case len(r.adding.add)+len(r.aside) == 0:
		return request.FieldFailure("window", "missing; "+request.WantWindow)
	case len(r.limited) > 0:
		return request.FieldFailure("limits", wantNoLeases)
	case op.TS != 0 && own+len(r.naming) > 0:
		// Even if all rules are off: switching one on must not fail a request.
		return request.FieldFailure("ts", "limits and rules are about the present; want them "+
			"without ts")
	}
	return nil
}

// findDistinctRules finds the limits of the rules that the check in progress names, which has so
// many limits itself. The default rules of its namespace judge values that are added now without
// limits and rules.
func (r *Request) findDistinctRules(op *twotier.Op, c *twotier.Check, own int) *request.Failure {
	if len(r.adding.add) > 0 && op.TS == 0 && own+len(r.naming) == 0 {
		set, f := r.ResolveRules()
		if f != nil {
			return f
		}
		r.naming = append(r.naming, set.DistinctDefaults(c.NS)...)
	}
	if f := r.enterSpace(c, "ns"); f != nil {
		return f
	}
	return r.findValueLimits(c, own)
}

// errUnjudged is the error of values that were refused without a limit.
var errUnjudged = fmt.Errorf("%w: the store can't be asked for the key's values, and on-cold is "+
	"deny", twotier.ErrUnavailable)

// FailUnjudged gives operations about values alone an error if they were refused without a limit:
// their answers name limits only.
func (r *Request) FailUnjudged() {
	for i := range r.Ops {
		res := &r.results[i]
		v := r.ValuesOf(i, 0, res)
		if v.Result != nil && r.checkValues(i, 0).alone && res.Err == nil && !res.Allowed &&
			len(r.RefusingValues(i, 0, v)) == 0 {
			res.Err = errUnjudged
		}
	}
}

// RefusingValues returns the positions of the limits on values that refuse, among the limits of
// check j of operation i.
func (r *Request) RefusingValues(i, j int, v Values) (at []int) {
	for k := range v.Judged {
		if r.Refuses(i, j, v.First+k, &v.Judged[k]) {
			at = append(at, v.First+k)
		}
	}
	return at
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
			if named.OfValues = false; named.Limit >= v.limits-v.windows {
				named.Limit = -1
			}
			err = &named
		}
	}
	return request.FailureOfOp(err, op, checksForm)
}
