package verdicts

import (
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
)

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

	of  func(k int) Origin // the origin of limit k; nil if no limit has a rule
	res *twotier.Result    // has the bans and leases of check j
	j   int
}

// BeginCheck starts a new check of the current acquire: the following verdicts are about its key.
func (r *Run) BeginCheck() { r.seen = [twotier.VerdictCount]bool{} }

// CountRuled counts the verdict of a rule on a check.
func (r *Run) CountRuled(s *Subject, o Origin) {
	r.BeginCheck()
	s.of, s.res = func(int) Origin { return o }, &r.none
	r.countRules(s)
}

// CountCheck counts the verdicts on check j of an operation: one for each rule that judged it, and
// one for its limits without a rule. The limits of each are adjacent; of returns the origin of
// limit k, and is nil if no limit has a rule.
func (r *Run) CountCheck(op *twotier.Op, j int, res *twotier.Result, of func(k int) Origin) {
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
		r.count(&s, Origin{}, twotier.VerdictOf(refused, false), 0, len(judged.Limits))
	}
	if len(res.Leases) > 0 {
		r.countLeases(&s)
	}
}

// countRules counts the verdicts of the rules that judged a subject.
func (r *Run) countRules(s *Subject) {
	for from, to := 0, 0; to < len(s.Limits) || to == 0; from = to {
		var o Origin
		refuses, near := false, false
		for ; to < len(s.Limits); to++ {
			next, l := s.of(to), &s.Limits[to]
			if to > from && (next.First || next.Rule == nil && o.Rule != nil) {
				break
			}
			o, refuses, near = next, refuses || next.Refuses(l, s.Beyond), near || next.IsNear(l)
		}
		banned := o.Rule != nil && s.res.BannedBy(s.j, o.Rule.Name)
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
		o := Origin{}
		if l.Rule != "" {
			r.named = twotier.Rule{Name: l.Rule}
			o = Origin{Rule: &r.named, Version: r.LeaseRules}
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

// count counts the verdict of limits [from, to), which have one origin, and passes the decision to
// the sinks that receive such verdicts.
func (r *Run) count(s *Subject, o Origin, v twotier.Verdict, from, to int) {
	r.CountVerdict(s.NS, o.ruleName(), v)
	repeated := r.seen[v]
	r.seen[v] = true
	if len(r.to.sinks[v]) == 0 {
		return
	}
	d := &r.record
	*d = decisions.Decision{Door: r.of.Endpoint, NS: s.NS, Key: s.Key, N: s.N,
		Distinct: o.Distinct, Rule: o.Rule, Version: o.Version, Verdict: v, Repeated: repeated,
		Limits: s.Limits[from:to], RetryAfter: s.RetryAfter, Trace: r.of.Trace}
	if o.Rule != nil && o.Rule.State == twotier.RuleShadow {
		d.Limits = append(r.maxima[:0], d.Limits...)
		for k := range d.Limits {
			d.Limits[k].Max = s.of(from + k).Max
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
