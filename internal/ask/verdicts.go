package ask

import (
	"slices"
	"time"

	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
)

// Verdicts counts and records the verdicts on the operations of an endpoint.
type Verdicts struct {
	// Counter counts verdicts; nil counts none.
	Counter verdicts.Counter
	// Recorder records decisions; nil records none.
	Recorder verdicts.Recorder
	// Refusals records refusals; nil records none.
	Refusals *refusallog.Log
}

// Arrival describes the arrival of a request.
type Arrival struct {
	// Endpoint is the name of the endpoint in metrics.
	Endpoint string
	// Began is when the request had arrived.
	Began time.Time
	// Trace finds the trace of the request; Span is its recorded span. Both may be nil.
	Trace trace.Source
	Span  trace.Span
}

// IsEnabled reports whether verdicts are counted or recorded.
func (v *Verdicts) IsEnabled() bool {
	return v.Counter != nil || v.Recorder != nil || v.Refusals != nil
}

// Begin starts counting the verdicts on a request.
func (v *Verdicts) Begin(a *Arrival) verdicts.Run {
	run := verdicts.Begin(v.Counter, a.Endpoint)
	run.RecordTo(v.Recorder)
	run.LogRefusals(v.Refusals)
	run.SetTrace(a.Trace)
	run.Annotate(a.Span)
	return run
}

// Count counts the verdicts on the executed acquires of a request. Answers that follow contain the
// ids of refusals.
func (v *Verdicts) Count(a *Arrival, r *Request) {
	if !v.IsEnabled() {
		return
	}
	run := v.Begin(a)
	r.CountVerdicts(&run)
	if run.HasDecision() {
		run.End(time.Since(a.Began))
	}
}

// CountVerdicts adds the verdicts on the executed acquires to run, and keeps the ids of their
// refusals.
func (r *Request) CountVerdicts(run *verdicts.Run) {
	r.refused = r.refused[:0]
	if len(r.leases) > 0 {
		run.SetLeaseRules(r.RulesVersion())
	}
	for i := range r.Ops {
		op, res := &r.Ops[i], &r.results[i]
		if res.Err != nil || !verdicts.Decides(op) {
			continue
		}
		run.BeginDecision()
		for j := range op.Checks {
			if !r.HasValues() {
				run.CountCheck(op, j, res, r.origins(i, j))
				continue
			}
			v, of := r.ValuesOf(i, j, res)
			if v == nil || len(op.Checks[j].Limits) > 0 {
				run.CountCheck(op, j, res, r.origins(i, j))
			}
			if v != nil {
				run.AddValues(v, of)
			}
		}
		if !res.Allowed && !run.RefusalID().IsZero() {
			r.refused = append(r.refused, refusedOp{i, run.RefusalID()})
		}
	}
}

// refusedOp is a refused operation and the id of the refusal.
type refusedOp struct {
	op int
	id refusallog.ID
}

// RefusalOf returns the id of the refusal of operation i, or a zero one if none was recorded.
func (r *Request) RefusalOf(i int) (id refusallog.ID) {
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
