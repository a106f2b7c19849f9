package verdicts

import (
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
)

// checked is check j of an executed operation. of returns the origin of limit k, and is nil if no
// limit has a rule.
type checked struct {
	op  *twotier.Op
	j   int
	res *twotier.Result
	of  func(k int) Origin
}

// CountCheck counts the verdicts on check j of an operation: one for each rule that judged it, and
// one for its limits without a rule. The limits of each are adjacent; of returns the origin of
// limit k, and is nil if no limit has a rule.
func (r *Run) CountCheck(op *twotier.Op, j int, res *twotier.Result, of func(k int) Origin) {
	c, judged := checked{op, j, res, of}, &res.Checks[j]
	r.seen = [twotier.VerdictCount]bool{}
	switch {
	case len(judged.Limits) == 0 && len(res.Leases) > 0:
	case of != nil:
		r.countRules(c)
	default:
		refused := judged.Refused && !onlyValuesRefuse(op, j, res)
		r.count(c, Origin{}, twotier.VerdictOf(refused, false), 0, len(judged.Limits))
	}
	if len(res.Leases) > 0 {
		r.countLeases(c)
	}
}

// countRules counts the verdicts of the rules that judged a check.
func (r *Run) countRules(c checked) {
	limits, beyond := c.res.Checks[c.j].Limits, c.op.NeededBeyond(c.j, c.res)
	for from, to := 0, 0; to < len(limits) || to == 0; from = to {
		var o Origin
		refuses, near := false, false
		for ; to < len(limits); to++ {
			next, l := c.of(to), &limits[to]
			if to > from && (next.First || next.Rule == nil && o.Rule != nil) {
				break
			}
			o, refuses, near = next, refuses || next.Refuses(l, beyond), near || next.IsNear(l)
		}
		banned := o.Rule != nil && c.res.BannedBy(c.j, o.Rule.Name)
		full, _ := c.res.LeaseVerdict(c.j, o.ruleName())
		if v, judges := o.verdict(refuses || banned || full, near); judges {
			r.count(c, o, v, from, to)
		}
		if to == 0 {
			return
		}
	}
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

// countLeases counts the verdicts of rules that limit only the leases of a check, and of such
// limits without a rule.
func (r *Run) countLeases(c checked) {
	for i := range c.res.Leases {
		l := &c.res.Leases[i]
		again := slices.ContainsFunc(c.res.Leases[:i], func(o twotier.LeaseResult) bool {
			return o.Check == c.j && o.Rule == l.Rule
		})
		if l.Check != c.j || again || c.hasLimits(l.Rule) {
			continue
		}
		refused, _ := c.res.LeaseVerdict(c.j, l.Rule)
		o := Origin{}
		if l.Rule != "" {
			if r.named == nil {
				r.named = new(twotier.Rule)
			}
			*r.named = twotier.Rule{Name: l.Rule}
			o = Origin{Rule: r.named, Version: r.LeaseRules}
		}
		r.count(c, o, twotier.VerdictOf(refused, l.Shadow), 0, 0)
	}
}

// hasLimits reports whether a check has limits on events of a rule, or without one if rule is
// empty.
func (c checked) hasLimits(rule string) bool {
	limits := c.res.Checks[c.j].Limits
	if c.of == nil {
		return rule == "" && len(limits) > 0
	}
	for k := range limits {
		if c.of(k).ruleName() == rule {
			return true
		}
	}
	return false
}

// count counts the verdict of limits [from, to), which have one origin, and passes the decision to
// the sinks that receive such verdicts.
func (r *Run) count(c checked, o Origin, v twotier.Verdict, from, to int) {
	check, judged := &c.op.Checks[c.j], &c.res.Checks[c.j]
	r.CountVerdict(check.NS, o.ruleName(), v)
	sinks, refused := r.to.sinks[v], v == twotier.Refused && r.to.Refusals != nil
	if len(sinks) == 0 && !refused {
		return
	}
	if r.record == nil {
		r.record = new(decisions.Decision)
	}
	d := r.record
	*d = decisions.Decision{Door: r.of.Endpoint, NS: check.NS, Key: check.Key, N: check.N,
		Distinct: o.Distinct, Rule: o.Rule, Version: o.Version, Verdict: v, Repeated: r.seen[v],
		Limits: judged.Limits[from:to], RetryAfter: judged.RetryAfter, Trace: r.of.Trace}
	r.seen[v] = true
	if o.Rule != nil && o.Rule.State == twotier.RuleShadow {
		d.Limits = append(r.maxima[:0], d.Limits...)
		for k := range d.Limits {
			d.Limits[k].Max = c.of(from + k).Max
		}
		r.maxima = d.Limits
	}
	if refused {
		c.findCauses(d)
		if id := r.to.Refusals.Record(d); r.refusal.IsZero() {
			r.refusal = id
		}
	}
	for _, receive := range sinks {
		receive(d)
	}
}

// findCauses finds the limit on leases and the ban behind a refusal.
func (c checked) findCauses(d *decisions.Decision) {
	name := d.RuleName()
	for k := range c.res.Leases {
		l := &c.res.Leases[k]
		if d.Lease == nil && l.Check == c.j && l.Rule == name && l.Refused && !l.Shadow {
			d.Lease = l
		}
	}
	for k := range c.res.Bans {
		if b := &c.res.Bans[k]; b.Check == c.j && b.Rule == name && name != "" {
			d.Ban = b
		}
	}
}
