package verdicts

import (
	"context"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// Reader reads counts.
type Reader interface {
	// DoAll executes operations and sets Err in each result.
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// NeverAsked reports whether no request has asked for a rule within a day: the [History] has no
// verdict of the rule. It returns false if the history can't be read.
func NeverAsked(ctx context.Context, from Reader, r *twotier.Rule) bool {
	const day = int64(24 * time.Hour / time.Millisecond)
	ops := make([]twotier.Op, twotier.VerdictCount)
	res := make([]twotier.Result, twotier.VerdictCount)
	for v := range ops {
		e := entry{seriesName{r.Space(), r.Name}, twotier.Verdict(v)}
		ops[v] = twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{{
			NS: []byte(request.Verdicts), Key: e.key(), Limits: []twotier.Limit{{Window: day}}}}}
	}
	from.DoAll(ctx, ops, res)
	for i := range res {
		if res[i].Err != nil || len(res[i].Checks) == 0 || len(res[i].Checks[0].Limits) == 0 ||
			res[i].Checks[0].Limits[0].Count > 0 {
			return false
		}
	}
	return true
}
