package verdicts

import (
	"slices"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/syncer"
)

// Values counts the verdicts on an operation that was to add n values to a key, as one more
// decision. of says where limit k is from.
func (r *Run) Values(op *distinct.Op, n int, res *distinct.Result, of func(k int) Origin) {
	judged := syncer.CheckResult{Refused: !res.Allowed}
	for k, l := range op.Limits[:min(len(op.Limits), len(res.Counts))] {
		judged.Limits = append(judged.Limits, syncer.LimitResult{Window: l.Window, Max: l.Max,
			Count: res.Counts[k].Values, Refused: slices.Contains(res.Over, k)})
	}
	if len(judged.Limits) == 0 {
		return
	}
	r.Decision()
	c := syncer.Check{NS: op.NS, Key: op.Key, N: int64(n)}
	r.Check(&c, 0, &syncer.Result{Allowed: res.Allowed, Checks: []syncer.CheckResult{judged}},
		func(k int) Origin {
			o := of(k)
			o.Distinct = true
			return o
		})
}
