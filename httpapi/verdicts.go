package httpapi

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/verdicts"
)

// Verdicts counts the verdicts on acquires.
type Verdicts interface {
	// Count counts n equal verdicts on keys of a namespace, by a rule or, if its name is empty, by
	// limits without a rule. An empty namespace is the default one. The door is "http" or
	// "forward-auth".
	Count(door string, ns []byte, rule string, v twotier.Verdict, n int64)
	// Took counts decisions that took this long, from the arrival of the request until its answer
	// was made, by their verdicts as a whole: refused if anything refused it, shadow-refused if
	// only rules in shadow would have.
	Took(door string, d time.Duration, n [twotier.VerdictCount]int64)
}

// Decisions records decisions one by one, for audit and analytics. It must not wait.
type Decisions interface {
	// Chosen reports whether to record the next decision with this verdict.
	Chosen(v twotier.Verdict) bool
	// Record records a decision. It keeps nothing of d.
	Record(d *twotier.Decision)
}

// countVerdicts counts the verdicts on the operations of x: acquires, and operations on values with
// limits.
func (s *Server) countVerdicts(x *requestState, results []twotier.Result) {
	if s.opts.Verdicts == nil && s.opts.Decisions == nil {
		return
	}
	run := verdicts.Begin(s.opts.Verdicts, x.door)
	run.RecordTo(s.opts.Decisions)
	run.PartOf(x.context)
	if x.traced.of != nil {
		run.Annotate(x.traced.of.Recorded())
	}
	for i := range results {
		if op, res := &x.ops[i], &results[i]; res.Err == nil && verdicts.Decides(op) {
			run.Decision()
			for j := range op.Checks {
				run.Check(&op.Checks[j], j, res, x.origins(i, j))
			}
		}
	}
	for i := range x.values {
		if v := &x.values[i]; v.err == nil {
			run.Values(&v.Values, &v.res)
		}
	}
	if run.Decided() {
		run.End(time.Since(x.began))
	}
}

// origins returns the origins of the limits of check j of operation i, or nil if the request names
// no rules.
func (d *decoder) origins(i, j int) func(k int) verdicts.Origin {
	if len(d.named) == 0 {
		return nil
	}
	return func(k int) verdicts.Origin {
		o := d.ruleOf(i, j, k).origin()
		o.Version = d.inForce.Version()
		return o
	}
}
