package verdicts

import (
	"bytes"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/trace"
)

// Run counts and records the verdicts of one request. Equal verdicts in a row are counted at once,
// so that a batch touches a shared counter once. A Run is for one goroutine, and has to end before
// the memory of the namespaces passed to it is reused. Its own memory is used again by the next
// Begin.
type Run struct {
	// LeaseRules is the version of the rules that limit only leases.
	LeaseRules int64

	to        *Counters
	of        Arrival
	ns        []byte
	rule      string
	verdict   twotier.Verdict
	n         int64
	decisions [twotier.VerdictCount]int64 // all but the last decision
	last      twotier.Verdict
	decided   bool
	overall   twotier.Verdict     // for the span
	refusal   decisions.RefusalID // the first one of the last decision

	seen [twotier.VerdictCount]bool // verdicts on the current check
	*scratch
}

// scratch is memory that a Run uses again.
type scratch struct {
	record  decisions.Decision
	maxima  []twotier.LimitResult // the limits of record if their rule is in shadow
	counted []twotier.LimitResult // the limits of values
	none    twotier.Result        // stands for the bans and leases of values
	named   twotier.Rule          // stands for a rule that limits only leases
	alone   Ruled                 // stands for its limit
}

// Begin starts a run for a request.
func (r *Run) Begin(to *Counters, of *Arrival) {
	*r = Run{to: to, of: *of, scratch: r.scratch}
	if r.scratch == nil {
		r.scratch = new(scratch)
	}
}

// RefusalID returns the id of the first refusal of the current acquire, or a zero one if nothing
// has refused it.
func (r *Run) RefusalID() decisions.RefusalID { return r.refusal }

// BeginDecision starts a new acquire: the following verdicts belong to it.
func (r *Run) BeginDecision() {
	if r.decided {
		r.decisions[r.last]++
	}
	r.decided, r.last, r.refusal = true, twotier.Allowed, decisions.RefusalID{}
}

// HasDecision reports whether there was a decision.
func (r *Run) HasDecision() bool { return r.decided }

// CountVerdict counts one verdict. An empty namespace is the default one; an empty rule means none.
func (r *Run) CountVerdict(ns []byte, rule string, v twotier.Verdict) {
	r.last, r.overall = worse(r.last, v), worse(r.overall, v)
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
	if r.n > 0 {
		r.to.count(r.of.Endpoint, r.ns, r.rule, r.verdict, r.n)
	}
	r.n = 0
}

// End counts the rest, and forgets the request. took is the duration of the request and of each of
// its decisions.
func (r *Run) End(took time.Duration) {
	r.flush()
	if r.decided {
		if r.of.Span != nil {
			r.of.Span.Set(trace.VerdictAttr(r.overall.String()))
		}
		r.decisions[r.last]++
		r.to.observeDuration(r.of.Endpoint, took, r.decisions)
	}
	r.record = decisions.Decision{}
	*r = Run{scratch: r.scratch}
}

// Ruled is a limit of a rule. Nil stands for a limit without a rule.
type Ruled struct {
	Rule    *twotier.Rule
	Limits  []twotier.RuleLimit // all limits of the rule for the key
	Index   int                 // of the limit among them
	Version int64               // of the rules
	// Distinct marks a limit on different values. The result alone shows whether it was too low,
	// whatever the state of its rule.
	Distinct bool
}

// Limit returns the limit as written in the rule.
func (l *Ruled) Limit() twotier.RuleLimit { return l.Limits[l.Index] }

// Policy returns the name of the limit in headers and paths.
func (l *Ruled) Policy() string { return l.Rule.PolicyName(l.Limits, l.Index) }

// IsInShadow reports whether the limit refuses nothing because its rule is in shadow.
func (l *Ruled) IsInShadow() bool { return l != nil && l.Rule.State == twotier.RuleShadow }

// ruleName returns the name of the rule, or "" if there is none.
func (l *Ruled) ruleName() string {
	if l == nil {
		return ""
	}
	return l.Rule.Name
}

// Refuses reports whether the limit refused, or would have refused if its rule were on. beyond is
// how many events its check needed room for in addition to its count, see
// [twotier.Op.NeededBeyond].
func (l *Ruled) Refuses(res *twotier.LimitResult, beyond int64) bool {
	if l == nil || l.Distinct || l.Rule.State == twotier.RuleOn {
		return res.Refused
	}
	return res.Count+beyond > l.Limit().Max
}

// IsNear reports whether the count of the limit has reached the warning level of its rule, whether
// the limit refused or not.
func (l *Ruled) IsNear(res *twotier.LimitResult) bool {
	return l != nil && l.Rule.State != twotier.RuleOff && l.Rule.IsNear(res.Count, l.Limit().Max)
}

// verdict returns the verdict of the limits of the rule, or of none, and false if the rule is off.
func (l *Ruled) verdict(refuses, near bool) (v twotier.Verdict, judges bool) {
	if near && !refuses {
		v = twotier.Near
	} else {
		v = twotier.VerdictOf(refuses, l.IsInShadow())
	}
	return v, l == nil || l.Rule.State != twotier.RuleOff
}

// Subject is what an acquire has judged, and the outcome: the events or the different values of a
// key.
type Subject struct {
	NS, Key []byte
	N       int64
	// Limits are the limits that judged. Beyond is how many events they needed room for in addition
	// to their counts.
	Limits     []twotier.LimitResult
	Beyond     int64
	RetryAfter int64

	distinct bool               // the limits are on values
	of       func(k int) *Ruled // limit k; nil if no limit has a rule
	res      *twotier.Result    // has the bans and leases of check j
	j        int
}

// BeginCheck starts a new check of the current acquire: the following verdicts are about its key.
func (r *Run) BeginCheck() { r.seen = [twotier.VerdictCount]bool{} }

// CountRuled counts the verdict of a rule on a check.
func (r *Run) CountRuled(s *Subject, of *Ruled) {
	r.BeginCheck()
	s.of, s.res = func(int) *Ruled { return of }, &r.none
	r.countRules(s)
}

// CountCheck counts the verdicts on check j of an operation: one for each rule that judged it, and
// one for its limits without a rule. The limits of each are adjacent; of returns limit k, and is
// nil if no limit has a rule.
func (r *Run) CountCheck(op *twotier.Op, j int, res *twotier.Result, of func(k int) *Ruled) {
	check, judged := &op.Checks[j], &res.Checks[j]
	s := Subject{NS: check.NS, Key: check.Key, N: check.N, Limits: judged.Limits,
		RetryAfter: judged.RetryAfter, of: of, res: res, j: j}
	switch {
	case len(judged.Limits) == 0 && len(res.Leases) > 0:
	case of != nil && !(judged.Refused && isUnexplained(op, j, res)):
		s.Beyond = op.NeededBeyond(j, res)
		r.countRules(&s)
	default:
		refused := judged.Refused && !(valuesRefuse(op, j, res) && !refuses(judged.Limits))
		r.count(&s, nil, twotier.VerdictOf(refused, false), 0, len(judged.Limits))
	}
	if len(res.Leases) > 0 {
		r.countLeases(&s)
	}
}

// CountValues counts the verdicts on the values, so many of them, that a check adds: their limits
// judged so, and of returns limit k.
func (r *Run) CountValues(c *twotier.Check, values int, judged *twotier.CheckResult,
	of func(k int) *Ruled) {
	r.counted = r.counted[:0]
	explained := false
	for k, l := range judged.Limits {
		explained = explained || l.Refused && !of(k).IsInShadow()
		r.counted = append(r.counted, twotier.LimitResult{Window: l.Window, Max: l.Max,
			Count: l.Count, Refused: l.Refused}) // an estimate lends nothing
	}
	s := Subject{NS: c.NS, Key: c.Key, N: int64(values), Limits: r.counted,
		RetryAfter: judged.RetryAfter, distinct: true, of: of, res: &r.none}
	if judged.Refused && !explained { // the values were unknown
		r.count(&s, nil, twotier.Refused, 0, len(s.Limits))
		return
	}
	r.countRules(&s)
}

// countRules counts the verdicts of the rules that judged a subject.
func (r *Run) countRules(s *Subject) {
	for from, to := 0, 0; to < len(s.Limits) || to == 0; from = to {
		var o *Ruled
		refuses, near := false, false
		for ; to < len(s.Limits); to++ {
			next, l := s.of(to), &s.Limits[to]
			if to > from && (next == nil && o != nil || next != nil && next.Index == 0) {
				break
			}
			o, refuses, near = next, refuses || next.Refuses(l, s.Beyond), near || next.IsNear(l)
		}
		banned := o != nil && s.res.BannedBy(s.j, o.Rule.Name)
		full, _ := s.res.LeaseVerdict(s.j, o.ruleName())
		if v, judges := o.verdict(refuses || banned || full, near); judges {
			r.count(s, o, v, from, to)
		}
		if to == 0 {
			return
		}
	}
}

// refuses reports whether one of some limits refused.
func refuses(limits []twotier.LimitResult) bool {
	return slices.ContainsFunc(limits, func(l twotier.LimitResult) bool { return l.Refused })
}

// valuesRefuse reports whether the values of check j refuse.
func valuesRefuse(op *twotier.Op, j int, res *twotier.Result) bool {
	for k := range res.Values {
		if op.Values[k].Check == j && res.Values[k].Refused {
			return true
		}
	}
	return false
}

// isUnexplained reports whether nothing refuses check j: if it was refused nevertheless, its counts
// were unknown.
func isUnexplained(op *twotier.Op, j int, res *twotier.Result) bool {
	return !refuses(res.Checks[j].Limits) && !valuesRefuse(op, j, res) &&
		!slices.ContainsFunc(res.Bans, func(b twotier.BanResult) bool { return b.Check == j }) &&
		!slices.ContainsFunc(res.Leases, func(l twotier.LeaseResult) bool {
			return l.Check == j && l.Refused
		})
}

// countLeases counts the verdicts of rules that limit only the leases of a check, and of such
// limits without a rule.
func (r *Run) countLeases(s *Subject) {
	for i := range s.res.Leases {
		l := &s.res.Leases[i]
		again := slices.ContainsFunc(s.res.Leases[:i], func(o twotier.LeaseResult) bool {
			return o.Check == s.j && o.Rule == l.Rule
		})
		if l.Check != s.j || again || s.hasLimits(l.Rule) {
			continue
		}
		refused, _ := s.res.LeaseVerdict(s.j, l.Rule)
		var o *Ruled
		if l.Rule != "" {
			r.named = twotier.Rule{Name: l.Rule}
			r.alone = Ruled{Rule: &r.named, Version: r.LeaseRules}
			o = &r.alone
		}
		r.count(s, o, twotier.VerdictOf(refused, l.Shadow), 0, 0)
	}
}

// hasLimits reports whether a subject has limits on events of a rule, or without one if rule is
// empty.
func (s *Subject) hasLimits(rule string) bool {
	if s.of == nil {
		return rule == "" && len(s.Limits) > 0
	}
	for k := range s.Limits {
		if s.of(k).ruleName() == rule {
			return true
		}
	}
	return false
}

// count counts the verdict of limits [from, to), which are of one rule or of none, and passes the
// decision to the sinks that receive such verdicts.
func (r *Run) count(s *Subject, o *Ruled, v twotier.Verdict, from, to int) {
	r.CountVerdict(s.NS, o.ruleName(), v)
	repeated := r.seen[v]
	r.seen[v] = true
	if len(r.to.sinks[v]) == 0 {
		return
	}
	d := &r.record
	*d = decisions.Decision{Door: r.of.Endpoint, NS: s.NS, Key: s.Key, N: s.N,
		Distinct: s.distinct, Verdict: v, Repeated: repeated, Limits: s.Limits[from:to],
		RetryAfter: s.RetryAfter, Trace: r.of.Trace}
	if o != nil {
		d.Rule, d.Version = o.Rule, o.Version
	}
	if o.IsInShadow() {
		d.Limits = append(r.maxima[:0], d.Limits...)
		for k := range d.Limits {
			d.Limits[k].Max = s.of(from + k).Limit().Max
		}
		r.maxima = d.Limits
	}
	if v == twotier.Refused {
		s.findCauses(d)
	}
	for _, sink := range r.to.sinks[v] {
		sink.Record(d)
	}
	if r.refusal.IsZero() {
		r.refusal = d.Refusal
	}
}

// findCauses finds the limit on leases and the ban behind a refusal.
func (s *Subject) findCauses(d *decisions.Decision) {
	name := d.RuleName()
	for k := range s.res.Leases {
		l := &s.res.Leases[k]
		if d.Lease == nil && l.Check == s.j && l.Rule == name && l.Refused && !l.Shadow {
			d.Lease = l
		}
	}
	for k := range s.res.Bans {
		if b := &s.res.Bans[k]; b.Check == s.j && b.Rule == name && name != "" {
			d.Ban = b
		}
	}
}
