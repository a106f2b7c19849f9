package ask

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/request"
)

// Settling is a request to settle a hold.
type Settling struct {
	ID string
	// All is the final number of events of every check, unless Checks names some: the others stay
	// as they are.
	All    int64
	Checks []SettledCheck
}

// SettledCheck is the final number of events of a key.
type SettledCheck struct {
	NS, Key []byte
	N       int64
}

// Settled is the answer to a [Settling].
type Settled struct {
	// Repeated means that the hold had been settled before, and that nothing was changed.
	Repeated bool
	// Late means that the hold had ended.
	Late bool
	// Over names the limits that are exceeded now: a rule and a window, or limits of the request.
	// Of several checks, each name begins with its check, as in checks[1].tokens/1m.
	Over []string
}

// Settle settles a hold, also beyond its limits, and until some time after its end. It can be
// repeated if the outcome is unknown.
func (r *Request) Settle(ctx context.Context, service Service,
	q *Settling) (*Settled, *request.Failure) {
	h, f := r.openHold(q.ID)
	if f != nil {
		return nil, f
	}
	now := r.Holds.Now()
	if !h.IsSettleable(now) {
		return nil, endedFailure(h)
	}
	final, f := finalOf(h, q)
	if f != nil {
		return nil, f
	}
	names := make([][]string, 0, len(h.Checks))
	x := settlement{r: r, service: service, hold: h, final: final,
		answer: Settled{Repeated: true, Late: !h.IsOpen(now)}}
	x.Settlement = h.Settle(now, final.n, func(*holds.Check) (limits []twotier.Limit) {
		limits, of := r.limitsOfKey(h, len(names))
		names = append(names, of)
		return limits
	})
	x.names = names
	answer, f := x.execute(ctx, now)
	if f == nil && h.Release {
		r.Holds.deadlines.Remove(q.ID, h.Until)
	}
	return answer, f
}

// openHold reads the id of a hold whose keys the grant covers. It may have ended.
func (r *Request) openHold(id string) (*holds.Hold, *request.Failure) {
	switch {
	case r.Holds == nil:
		return nil, request.FieldFailure("hold", "this server has no holds")
	case r.Holds.Sealer.Secret() == nil:
		return nil, noSecretFailure()
	}
	h, err := r.Holds.Sealer.Open(id)
	switch {
	case errors.Is(err, holds.ErrForged):
		return nil, &request.Failure{Kind: request.Forbidden, Field: "hold", Detail: err.Error()}
	case err != nil:
		return nil, &request.Failure{Kind: request.NotFound, Field: "hold", Detail: err.Error()}
	}
	for i := range h.Checks {
		if f := CheckGrant(r.Grant, twotier.RoleCount, h.Checks[i].NS); f != nil {
			return nil, f
		}
	}
	return h, nil
}

// endedFailure is the failure of a settlement that comes too late.
func endedFailure(h *holds.Hold) *request.Failure {
	detail := "it ended more than 10m ago, with its events counted; add the difference to its keys"
	if h.Release {
		detail = "it ended more than 10m ago, with its events released; add the final number to " +
			"its keys"
	}
	return &request.Failure{Kind: request.Gone, Field: "hold", Detail: detail}
}

// limitsOfKey returns the limits of the key of a check of a hold, and their names: those of all
// checks of the key, so that they are compared once all of them are settled. There are none unless
// it is the last of them.
func (r *Request) limitsOfKey(h *holds.Hold, check int) (limits []twotier.Limit, names []string) {
	key := &h.Checks[check]
	if slices.ContainsFunc(h.Checks[check+1:], key.HasKeyOf) {
		return nil, nil
	}
	for i := range h.Checks[:check+1] {
		c, path := &h.Checks[i], ""
		if !c.HasKeyOf(*key) {
			continue
		}
		if len(h.Checks) > 1 {
			path = fmt.Sprintf("checks[%d].", i)
		}
		l, n := r.limitsOf(c, path)
		limits, names = append(limits, l...), append(names, n...)
	}
	return limits, names
}

// limitsOf returns the limits that a check of a hold has now, and their names, which begin with
// path.
func (r *Request) limitsOf(c *holds.Check, path string) (limits []twotier.Limit, names []string) {
	set, _ := r.ResolveRules() // without rules, a settlement exceeds none
	for _, name := range c.Rules {
		rule := set.Find([]byte(name))
		if rule == nil || rule.State == twotier.RuleOff {
			continue
		}
		of := rule.For(c.Key)
		for k, l := range of {
			limits = append(limits, twotier.Limit{Window: l.Window, Period: l.Period, Max: l.Max})
			names = append(names, path+rule.PolicyName(of, k))
		}
	}
	for k, l := range c.Limits {
		limits, names = append(limits, l), append(names, fmt.Sprintf("%slimits[%d]", path, k))
	}
	return limits, names
}

// errUnsettled is the error of a settlement that a key's namespace refuses.
var errUnsettled = fmt.Errorf("%w: the store can't be asked for the counts of a key",
	twotier.ErrUnavailable)

// exceeds reports whether the count of a limit of a settled key is above the limit.
func exceeds(res *twotier.Result, limit int, most int64) bool {
	return len(res.Checks) > 0 && limit < len(res.Checks[0].Limits) &&
		res.Checks[0].Limits[limit].Count > most
}

// isOutOfReach reports whether an operation was refused because its time or window is farther back
// than its namespace covers. Events of that time are in no window any more.
func isOutOfReach(err error) bool {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	return ok && (invalid.Field == "ts" || invalid.Field == "window")
}

// failureOfSettling returns the failure of a settlement of which one part failed: others may have
// been carried out.
func failureOfSettling(h *holds.Hold, err error) *request.Failure {
	if invalid, ok := errors.AsType[*twotier.InvalidError](err); ok && invalid.Field == "hold" {
		return endedFailure(h) // on its way to the owner of the key
	}
	f := request.FailureOf(err, true)
	if f.Kind == request.Unavailable || f.Kind == request.Overload {
		f.Kind = request.Unknown
		f.Detail += "; repeat the settlement"
	}
	return &f
}

// finalNumbers are the final numbers of events of the checks of a hold.
type finalNumbers struct {
	n     []int64
	named []bool // by the request; the others stay as they are
}

// finalOf returns the final numbers of a hold. The number of a key that several of its checks have
// is the sum of the request's entries for it, of which there is one for each check at most.
func finalOf(h *holds.Hold, q *Settling) (final finalNumbers, f *request.Failure) {
	if q.All < 0 || q.All > request.MaxN {
		return final, request.FieldFailure("n", request.WantAcquireN)
	}
	entries := make([]int, len(h.Checks)) // for the key of each check
	left := make([]int64, len(h.Checks))  // of the key's number, at its first check
	final = finalNumbers{make([]int64, len(h.Checks)), make([]bool, len(h.Checks))}
	for i := range h.Checks {
		left[i], final.named[i] = q.All, len(q.Checks) == 0
	}
	for k := range q.Checks {
		c, known := &q.Checks[k], false
		if c.N < 0 || c.N > request.MaxN {
			return final, request.FieldFailure(fmt.Sprintf("checks[%d].n", k), request.WantAcquireN)
		}
		for i := range h.Checks {
			if !sameKey(&h.Checks[i], c) {
				continue
			}
			known, final.named[i] = true, true
			left[i], entries[i] = left[i]+c.N, entries[i]+1
			if entries[i] > checksOf(h, i) {
				return final, request.FieldFailure(fmt.Sprintf("checks[%d].key", k), "given before")
			}
		}
		if !known {
			return final, request.FieldFailure(fmt.Sprintf("checks[%d].key", k),
				"the hold is not of this key")
		}
	}
	final.spread(h, left)
	return final, nil
}

// spread spreads the number of each key over its checks: each gets as much as it holds, and the
// last one the rest. So no count grows on the way if it does not in the end.
func (final *finalNumbers) spread(h *holds.Hold, left []int64) {
	for i := range h.Checks {
		c := &h.Checks[i]
		first := slices.IndexFunc(h.Checks, c.HasKeyOf)
		switch last := !slices.ContainsFunc(h.Checks[i+1:], c.HasKeyOf); {
		case !final.named[i]:
			final.n[i] = c.N
		case last:
			final.n[i] = left[first]
		default:
			final.n[i] = min(c.N, left[first])
			left[first] -= final.n[i]
		}
	}
}

// checksOf returns how many checks of a hold have the key of check i.
func checksOf(h *holds.Hold, i int) (n int) {
	for j := range h.Checks {
		if h.Checks[i].HasKeyOf(h.Checks[j]) {
			n++
		}
	}
	return n
}

// sameKey reports whether a check of a hold has a key. The namespace of a rule need not be given.
func sameKey(h *holds.Check, c *SettledCheck) bool {
	return bytes.Equal(h.Key, c.Key) && (len(c.NS) == 0 ||
		holds.SpaceOf(h.NS) == holds.SpaceOf(c.NS))
}

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
