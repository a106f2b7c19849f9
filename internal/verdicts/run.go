package verdicts

import (
	"bytes"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/trace"
)

// Counter counts the verdicts of a [Run], see [Counters].
type Counter interface {
	// Count counts n equal verdicts on keys of a namespace, of a rule or, if its name is empty, of
	// limits without a rule. An empty namespace is the default one.
	Count(endpoint string, ns []byte, rule string, v twotier.Verdict, n int64)
	// ObserveDuration counts decisions with the given duration, by overall verdict.
	ObserveDuration(endpoint string, d time.Duration, n [twotier.VerdictCount]int64)
}

// ShadowRecorder is a [Counter] that receives the keys that rules in shadow would have refused:
// once per check, however many rules.
type ShadowRecorder interface {
	RecordShadow(ns, key []byte)
}

// RefusalRecorder is a [Counter] that receives the refusing limits without a rule.
type RefusalRecorder interface {
	RecordRefused(ns []byte, limits []twotier.LimitResult)
}

// CrossingRecorder is a [Counter] that receives the limits of rules whose counts have reached the
// rule's warning level, even if they refuse.
type CrossingRecorder interface {
	RecordCrossing(c *Crossing)
}

// Crossing is a limit of a rule with a count at or above the rule's warning level.
type Crossing struct {
	// NS and Key are views into memory of the request. An empty namespace is the default one.
	NS, Key []byte
	Rule    *twotier.Rule
	Limit   twotier.Compared
	// Distinct marks a limit on different values.
	Distinct bool
}

// Decides reports whether the verdicts on an operation are counted: only acquires count, except dry
// runs and imports of earlier events.
func Decides(op *twotier.Op) bool {
	return op.Kind == twotier.Acquire && !op.DryRun && (op.TS == 0 || !isImport(op))
}

// isImport reports whether an acquire marks its events as imported.
func isImport(op *twotier.Op) bool {
	return twotier.IsImported(op.Checks[len(op.Checks)-1].NS)
}

// Run counts the verdicts of one request. Equal verdicts in a row are counted at once, so that a
// batch touches a shared counter once. A Run is for one goroutine, and has to end before the memory
// of the namespaces passed to it is reused.
type Run struct {
	counter   Counter
	endpoint  string
	ns        []byte
	rule      string
	verdict   twotier.Verdict
	n         int64
	decisions [twotier.VerdictCount]int64 // all but the last decision
	last      twotier.Verdict
	decided   bool
	shadow    bool // a rule in shadow would have refused the current check
	recorder  Recorder
	traced    trace.Source    // nil if traces are unknown
	span      trace.Span      // nil if no span is recorded
	overall   twotier.Verdict // for span
	refusals  *refusallog.Log // nil if none are recorded
	refusal   refusallog.ID   // the first one of the last decision
	leasedBy  int64           // the version of rules that limit only leases
}

// Begin returns a run for a request at an endpoint. A nil counter counts nothing.
func Begin(c Counter, endpoint string) Run { return Run{counter: c, endpoint: endpoint} }

// RecordTo makes the run record the verdicts that it counts; nil records nothing.
func (r *Run) RecordTo(to Recorder) { r.recorder = to }

// SetTrace makes the run record the trace of the request. The source is only asked when a verdict
// is recorded.
func (r *Run) SetTrace(traced trace.Source) { r.traced = traced }

// Annotate makes the run add the overall verdict of the request to a span: refused if any part of
// it was. A nil span is ignored.
func (r *Run) Annotate(span trace.Span) { r.span = span }

// LogRefusals makes the run record the refusals that it counts; nil records none.
func (r *Run) LogRefusals(to *refusallog.Log) { r.refusals = to }

// SetLeaseRules sets the version of the rules that limit only leases.
func (r *Run) SetLeaseRules(version int64) { r.leasedBy = version }

// RefusalID returns the id of the first refusal of the current acquire, or a zero one if nothing
// has refused it.
func (r *Run) RefusalID() refusallog.ID { return r.refusal }

// BeginDecision starts a new acquire: the following verdicts belong to it.
func (r *Run) BeginDecision() {
	if r.decided {
		r.decisions[r.last]++
	}
	r.decided, r.last = true, twotier.Allowed
	if r.refusals != nil {
		r.refusal = refusallog.ID{}
	}
}

// HasDecision reports whether there was a decision.
func (r *Run) HasDecision() bool { return r.decided }

// CountVerdict counts one verdict. An empty namespace is the default one; an empty rule means none.
func (r *Run) CountVerdict(ns []byte, rule string, v twotier.Verdict) {
	r.last = worse(r.last, v)
	if r.span != nil {
		r.overall = worse(r.overall, v)
	}
	if r.n > 0 && v == r.verdict && rule == r.rule && bytes.Equal(ns, r.ns) {
		r.n++
		return
	}
	r.flush()
	r.ns, r.rule, r.verdict, r.n = ns, rule, v, 1
}

// worse adds the verdict v to the overall verdict on an acquire: a refusal decides, a verdict in
// shadow counts only where none refuses, and an acquire near a limit is allowed.
func worse(overall, v twotier.Verdict) twotier.Verdict {
	switch {
	case overall == twotier.Refused || v == twotier.Refused:
		return twotier.Refused
	case v == twotier.Near:
		return overall
	}
	return max(overall, v)
}

// flush counts the current run of equal verdicts.
func (r *Run) flush() {
	if r.n > 0 && r.counter != nil {
		r.counter.Count(r.endpoint, r.ns, r.rule, r.verdict, r.n)
	}
	r.n = 0
}

// End counts the rest. took is the duration of the request and of each of its decisions.
func (r *Run) End(took time.Duration) {
	r.flush()
	if r.decided && r.span != nil {
		r.span.Set(trace.VerdictAttr(r.overall.String()))
	}
	if r.decided && r.counter != nil {
		r.decisions[r.last]++
		r.counter.ObserveDuration(r.endpoint, took, r.decisions)
	}
	r.decisions, r.decided = [twotier.VerdictCount]int64{}, false
}

// Origin is the source of a limit of a check.
type Origin struct {
	// Rule is nil for a limit without a rule.
	Rule *twotier.Rule
	// Max is the maximum in the rule, whatever its state.
	Max int64
	// First marks the first limit of a rule.
	First bool
	// Version is the version of the rule's document.
	Version int64
	// Distinct marks a limit on different values. The result alone shows whether it was too low,
	// whatever the state of its rule.
	Distinct bool
}

// ruleName returns the name of the rule, or "" if there is none.
func (o Origin) ruleName() string {
	if o.Rule == nil {
		return ""
	}
	return o.Rule.Name
}

// Refuses reports whether the limit refused, or would have refused if its rule were on. beyond is
// how many events its check needed room for in addition to its count, see
// [twotier.Op.NeededBeyond].
func (o Origin) Refuses(l *twotier.LimitResult, beyond int64) bool {
	if o.Rule == nil || o.Distinct || o.Rule.State == twotier.RuleOn {
		return l.Refused
	}
	return l.Count+beyond > o.Max
}

// IsNear reports whether the count of the limit has reached the warning level of its rule, whether
// the limit refused or not.
func (o Origin) IsNear(l *twotier.LimitResult) bool {
	return o.Rule != nil && o.Rule.State != twotier.RuleOff && o.Rule.IsNear(l.Count, o.Max)
}

// limitRange is a range of limits from one rule, or from none.
type limitRange struct {
	limits   []twotier.LimitResult
	of       func(k int) Origin // nil if no limit has a rule
	from, to int
}

// unruledLimits returns limits without a rule.
func unruledLimits(limits []twotier.LimitResult) limitRange {
	return limitRange{limits, nil, 0, len(limits)}
}

// CountCheck counts the verdicts on check j of an operation: one for each rule that judged it, and
// one for its limits without a rule. The limits of each are adjacent; of returns the origin of
// limit k, and is nil if no limit has a rule.
func (r *Run) CountCheck(op *twotier.Op, j int, res *twotier.Result, of func(k int) Origin) {
	c, judged := &op.Checks[j], &res.Checks[j]
	if of == nil {
		if len(judged.Limits) > 0 || len(res.Leases) == 0 {
			refused := judged.Refused && !onlyValuesRefuse(op, j, res)
			r.countOrigin(c, Origin{}, refused, false, unruledLimits(judged.Limits))
			if refused && r.refusals != nil {
				r.logRefusal(c, j, res, Origin{}, judged.Limits)
			}
		}
		r.countLeases(c, j, res, of)
		return
	}
	var last Origin
	refuses, near, from, beyond := false, false, 0, op.NeededBeyond(j, res)
	end := func(to int) {
		banned := last.Rule != nil && res.BannedBy(j, last.Rule.Name)
		full, _ := res.LeaseVerdict(j, last.ruleName())
		limits := limitRange{judged.Limits, of, from, to}
		refuses = refuses || banned || full
		r.countOrigin(c, last, refuses, near, limits)
		if refuses && r.refusals != nil {
			r.logRefusal(c, j, res, last, judged.Limits[from:to])
		}
		if near {
			r.recordCrossings(c, limits)
		}
		refuses, near, from = false, false, to
	}
	for k := range judged.Limits {
		o := of(k)
		if k > 0 && (o.First || o.Rule == nil && last.Rule != nil) {
			end(k)
		}
		l := &judged.Limits[k]
		last, refuses, near = o, refuses || o.Refuses(l, beyond), near || o.IsNear(l)
	}
	end(len(judged.Limits))
	r.countLeases(c, j, res, of)
	r.recordShadow(c)
}

// onlyValuesRefuse reports whether values refuse check j, but no limit on events does.
func onlyValuesRefuse(op *twotier.Op, j int, res *twotier.Result) bool {
	for k := range res.Values {
		if op.Values[k].Check == j && res.Values[k].Refused {
			return !slices.ContainsFunc(res.Checks[j].Limits,
				func(l twotier.LimitResult) bool { return l.Refused })
		}
	}
	return false
}

// recordShadow records the key of a check that rules in shadow would have refused.
func (r *Run) recordShadow(c *twotier.Check) {
	if !r.shadow {
		return
	}
	r.shadow = false
	if n, ok := r.counter.(ShadowRecorder); ok {
		n.RecordShadow(c.NS, c.Key)
	}
}

// countLeases counts the verdicts of rules that limit only the leases of check j, and of such
// limits without a rule.
func (r *Run) countLeases(c *twotier.Check, j int, res *twotier.Result, of func(k int) Origin) {
	for i := range res.Leases {
		l := &res.Leases[i]
		if l.Check != j || slices.ContainsFunc(res.Leases[:i], func(o twotier.LeaseResult) bool {
			return o.Check == j && o.Rule == l.Rule
		}) || hasLimits(&res.Checks[j], l.Rule, of) {
			continue
		}
		refused, _ := res.LeaseVerdict(j, l.Rule)
		v := twotier.VerdictOf(refused, l.Shadow)
		r.CountVerdict(c.NS, l.Rule, v)
		if v == twotier.Refused && r.refusals != nil {
			rule := &twotier.Rule{Name: l.Rule}
			r.logRefusal(c, j, res, Origin{Rule: rule, Version: r.leasedBy}, nil)
		}
		r.shadow = r.shadow || v == twotier.ShadowRefused
	}
	r.recordShadow(c)
}

// hasLimits reports whether a check has limits on events of a rule, or without one if rule is
// empty.
func hasLimits(judged *twotier.CheckResult, rule string, of func(k int) Origin) bool {
	if of == nil {
		return rule == "" && len(judged.Limits) > 0
	}
	for k := range judged.Limits {
		if of(k).ruleName() == rule {
			return true
		}
	}
	return false
}

// recordCrossings records the limits of a rule that have reached its warning level.
func (r *Run) recordCrossings(c *twotier.Check, limits limitRange) {
	to, ok := r.counter.(CrossingRecorder)
	for k := limits.from; k < limits.to && ok; k++ {
		if o, l := limits.of(k), &limits.limits[k]; o.IsNear(l) {
			to.RecordCrossing(&Crossing{NS: c.NS, Key: c.Key, Rule: o.Rule, Distinct: o.Distinct,
				Limit: twotier.Compared{Window: l.Window, Period: l.Period, Count: l.Count,
					Max: o.Max}})
		}
	}
}

// countOrigin counts the verdict of the limits of one origin. near is set if the count of one of
// them has reached the rule's warning level. A rule that is off has none.
func (r *Run) countOrigin(c *twotier.Check, o Origin, refuses, near bool, limits limitRange) {
	v := twotier.VerdictOf(refuses, false)
	switch {
	case o.Rule == nil:
		r.CountVerdict(c.NS, "", v)
		if n, ok := r.counter.(RefusalRecorder); ok && refuses {
			n.RecordRefused(c.NS, limits.limits[limits.from:limits.to])
		}
	case o.Rule.State == twotier.RuleOff:
		return
	default:
		v = twotier.VerdictOf(refuses, o.Rule.State == twotier.RuleShadow)
		if near && !refuses {
			v = twotier.Near
		}
		r.CountVerdict(c.NS, o.Rule.Name, v)
		r.shadow = r.shadow || v == twotier.ShadowRefused
	}
	if r.ShouldRecord(v) {
		r.record(c, o, v, limits)
	}
}

// ShouldRecord reports whether to record a verdict that [Run.CountVerdict] has counted.
func (r *Run) ShouldRecord(v twotier.Verdict) bool {
	return r.recorder != nil && r.recorder.ShouldRecord(v)
}
