package ask

import (
	"slices"
	"time"

	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/verdicts"
)

// CountVerdicts counts the verdicts on the executed acquires of the request. Answers that follow
// contain the ids of refusals. Nil counters count nothing.
func (r *Request) CountVerdicts(c *verdicts.Counters, of *verdicts.Arrival) {
	if c == nil {
		return
	}
	run := &r.run
	run.Begin(c, of)
	r.refused = r.refused[:0]
	if len(r.leases) > 0 {
		run.LeaseRules = r.RulesVersion()
	}
	for i := range r.Ops {
		op, res := &r.Ops[i], &r.results[i]
		if res.Err != nil || !verdicts.Decides(op) {
			continue
		}
		run.BeginDecision()
		for j := range op.Checks {
			run.BeginCheck()
			if !r.HasValues() {
				run.CountCheck(op, j, res, r.origins(i, j))
				continue
			}
			v, of := r.ValuesOf(i, j, res)
			if v == nil || len(op.Checks[j].Limits) > 0 {
				run.CountCheck(op, j, res, r.origins(i, j))
			}
			if v != nil {
				run.CountValues(v, of)
			}
		}
		if !res.Allowed && !run.RefusalID().IsZero() {
			r.refused = append(r.refused, refusedOp{i, run.RefusalID()})
		}
	}
	took := time.Duration(0)
	if run.HasDecision() {
		took = time.Since(of.Began)
	}
	run.End(took)
}

// refusedOp is a refused operation and the id of the refusal.
type refusedOp struct {
	op int
	id decisions.RefusalID
}

// RefusalOf returns the id of the refusal of operation i, or a zero one if none was recorded.
func (r *Request) RefusalOf(i int) (id decisions.RefusalID) {
	at, ok := slices.BinarySearchFunc(r.refused, i, func(o refusedOp, op int) int {
		return o.op - op
	})
	if ok {
		id = r.refused[at].id
	}
	return id
}

// origins returns the origins of the limits of check j of operation i, or nil if no rule judged the
// request.
func (r *Request) origins(i, j int) func(k int) verdicts.Origin {
	if len(r.ruled) == 0 {
		return nil
	}
	return func(k int) verdicts.Origin { return r.RuleOf(i, j, k).Origin() }
}
