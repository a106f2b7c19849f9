package ask

import (
	"context"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/request"
)

// settlement is the execution of a settlement.
type settlement struct {
	*holds.Settlement
	r       *Request
	service Service
	hold    *holds.Hold
	final   finalNumbers
	names   [][]string // of the limits of each operation
	most    [][]int64  // the maximum of each of them
	reset   []bool     // whether the key of each check was reset after the hold
	answer  Settled
	renewed int // operations
}

// execute executes a settlement at a time.
func (x *settlement) execute(ctx context.Context, now int64) (*Settled, *request.Failure) {
	var err error
	x.reset, err = wereReset(ctx, x.service, x.hold, now)
	if err != nil {
		return nil, failureOfSettling(x.hold, err)
	}
	for i := range x.Ops {
		if x.reset[i] {
			x.AfterReset(i, x.whole(i))
		}
	}
	x.liftLimits()
	results := make([]twotier.Result, len(x.Ops))
	if len(x.Ops) == 1 {
		results[0].Err = x.service.Do(ctx, &x.Ops[0], &results[0])
	} else {
		x.service.DoAll(ctx, x.Ops, results)
	}
	for i := range results {
		if f := x.finish(ctx, i, &results[i]); f != nil {
			return nil, f
		}
	}
	if x.renewed == len(results) {
		return nil, &request.Failure{Kind: request.Gone, Field: "hold",
			Detail: "it was renewed: settle the id that the renewal returned"}
	}
	return &x.answer, nil
}

// whole returns how many events check i counts if nothing is left of those of the hold. After a
// reset, a key that the settlement does not name stays as it is.
func (x *settlement) whole(i int) int64 {
	if x.reset[i] && !x.final.named[i] {
		return 0
	}
	return x.final.n[i]
}

// liftLimits makes sure that no limit refuses, and keeps them to compare the results with.
func (x *settlement) liftLimits() {
	x.most = make([][]int64, len(x.Ops))
	for i := range x.Ops {
		for j := range x.Ops[i].Checks[0].Limits {
			l := &x.Ops[i].Checks[0].Limits[j]
			x.most[i] = append(x.most[i], l.Max)
			l.Max = twotier.Unlimited
		}
	}
}

// finish executes what operation i, which had this result, has left to do, and adds it to the
// answer.
func (x *settlement) finish(ctx context.Context, i int, res *twotier.Result) *request.Failure {
	if isOutOfReach(res.Err) {
		x.again(ctx, x.WithoutEvents(i), res)
	}
	if res.Err == nil && x.Outcome(i, res) == holds.LeaseGone {
		x.again(ctx, x.WithoutLease(i), res)
	}
	if res.Err == nil && x.Outcome(i, res) == holds.Released {
		x.answer.Late = true
		x.again(ctx, x.AfterRelease(i, x.whole(i)), res)
	}
	if res.Err != nil {
		return failureOfSettling(x.hold, res.Err)
	}
	switch x.Outcome(i, res) {
	case holds.Unsettled:
		return failureOfSettling(x.hold, errUnsettled)
	case holds.Renewed:
		x.renewed++
	case holds.Settled:
		x.answer.Repeated = false
		x.r.Holds.Tally.Move(holds.SpaceOf(x.hold.Checks[i].NS), x.hold.Until, 0)
	}
	for j := range x.most[i] {
		if exceeds(res, j, x.most[i][j]) && !slices.Contains(x.answer.Over, x.names[i][j]) {
			x.answer.Over = append(x.answer.Over, x.names[i][j])
		}
	}
	return nil
}

// again executes an operation in place of another one.
func (x *settlement) again(ctx context.Context, op twotier.Op, res *twotier.Result) {
	res.Err = x.service.Do(ctx, &op, res)
}

// wereReset reports for each check of a hold whether its key was reset after the hold, until a
// time. A key whose namespace does not reach back to the hold was not: nothing is taken back from
// it.
func wereReset(ctx context.Context, service Service, h *holds.Hold, now int64) ([]bool, error) {
	ops := make([]twotier.Op, len(h.Checks))
	results, reset := make([]twotier.Result, len(ops)), make([]bool, len(ops))
	for i := range h.Checks {
		c := &h.Checks[i]
		ns, key := twotier.ResetKey(c.NS, c.Key)
		ops[i] = twotier.Op{Kind: twotier.Count, TS: now, Checks: []twotier.Check{{NS: ns, Key: key,
			Limits: []twotier.Limit{{Window: max(1, now-c.TS+1)}}}}}
	}
	service.DoAll(ctx, ops, results)
	for i := range results {
		switch res := &results[i]; {
		case isOutOfReach(res.Err):
		case res.Err != nil:
			return nil, res.Err
		case len(res.Checks) > 0 && len(res.Checks[0].Limits) > 0:
			reset[i] = res.Checks[0].Limits[0].Hi > 0
		}
	}
	return reset, nil
}
