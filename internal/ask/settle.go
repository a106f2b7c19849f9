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
	// Over names the limits that are exceeded now: a rule and a window, or limits of the request.
	// Of several checks, each name begins with its check, as in checks[1].tokens/1m.
	Over []string
}

// Settle settles a hold, also beyond its limits. It can be repeated if the outcome is unknown.
func (r *Request) Settle(ctx context.Context, service Service,
	q *Settling) (*Settled, *request.Failure) {
	h, f := r.openHold(q.ID)
	if f != nil {
		return nil, f
	}
	n, f := amountsOf(h, q)
	if f != nil {
		return nil, f
	}
	names := make([][]string, 0, len(h.Checks))
	s := h.Settle(n, func(c *holds.Check) (limits []twotier.Limit) {
		path := ""
		if len(h.Checks) > 1 {
			path = fmt.Sprintf("checks[%d].", len(names))
		}
		limits, of := r.limitsOf(c, path)
		names = append(names, of)
		return limits
	})
	answer, f := r.execute(ctx, service, h, s, names)
	if f == nil && h.Release {
		r.Holds.deadlines.Remove(q.ID, h.Until)
	}
	return answer, f
}

// Renewed is the answer to a renewal: the id that takes the place of the old one.
type Renewed struct {
	ID    string
	Until int64
}

// Renew moves the end of a hold to that many milliseconds from now.
func (r *Request) Renew(ctx context.Context, service Service, id string,
	lasts int64) (*Renewed, *request.Failure) {
	h, f := r.openHold(id)
	if f != nil {
		return nil, f
	}
	now := r.Holds.Now()
	until := twotier.LeaseEnd(now, lasts)
	for i := range h.Checks {
		if now+lasts-h.Checks[i].TS > twotier.MaxLease.Milliseconds() {
			return nil, request.FieldFailure("for", "it would end more than 24h after it began")
		}
	}
	next, ops := h.Renew(until)
	results := make([]twotier.Result, len(ops))
	service.DoAll(ctx, ops, results)
	for i := range results {
		if f := failureOfRenewal(h, &results[i]); f != nil {
			r.Holds.releaseRenewed(next, results)
			return nil, f
		}
	}
	for i := range h.Checks {
		r.Holds.Tally.Renewed(spaceOf(h.Checks[i].NS), h.Until, until)
	}
	renewed := &Renewed{r.Holds.Sealer.Seal(next), until}
	if next.Release {
		ticket := r.Holds.deadlines.Add(renewed.ID, until)
		r.Holds.deadlines.Remove(id, h.Until)
		if ops[0].Ack >= twotier.AckStore {
			if err := r.Holds.deadlines.Await(ctx, ticket); err != nil {
				return nil, failureOfSettling(h, err)
			}
		}
	}
	return renewed, nil
}

// failureOfRenewal returns why a key of a hold is not renewed, or nil if it is.
func failureOfRenewal(h *holds.Hold, res *twotier.Result) *request.Failure {
	switch {
	case res.Err != nil:
		return failureOfSettling(h, res.Err)
	case !res.Allowed:
		return &request.Failure{Kind: request.Gone, Field: "hold",
			Detail: "it was settled or renewed before, or its lease is lost"}
	}
	return nil
}

// openHold reads the id of a hold that has not ended, and whose keys the grant covers.
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
	if !h.IsOpen(r.Holds.Now()) {
		return nil, endedFailure(h)
	}
	return h, nil
}

func endedFailure(h *holds.Hold) *request.Failure {
	f := &request.Failure{Kind: request.Gone, Field: "hold",
		Detail: "it has ended: what it counted stays counted"}
	if h.Release {
		f.Detail = "it has ended: what it counted is released"
	}
	return f
}

// amountsOf returns the final number of events of each check.
func amountsOf(h *holds.Hold, q *Settling) (n []int64, f *request.Failure) {
	n = make([]int64, len(h.Checks))
	if q.All < 0 || q.All > request.MaxN {
		return nil, request.FieldFailure("n", request.WantAcquireN)
	}
	for i := range h.Checks {
		if n[i] = q.All; len(q.Checks) > 0 {
			n[i] = h.Checks[i].N
		}
	}
	for k := range q.Checks {
		c, known := &q.Checks[k], false
		if c.N < 0 || c.N > request.MaxN {
			return nil, request.FieldFailure(fmt.Sprintf("checks[%d].n", k), request.WantAcquireN)
		}
		if slices.ContainsFunc(q.Checks[:k], c.hasKeyOf) {
			return nil, request.FieldFailure(fmt.Sprintf("checks[%d].key", k), "given before")
		}
		for i := range h.Checks {
			if sameKey(&h.Checks[i], c) {
				n[i], known = c.N, true
			}
		}
		if !known {
			return nil, request.FieldFailure(fmt.Sprintf("checks[%d].key", k),
				"the hold is not of this key")
		}
	}
	return n, nil
}

func (c *SettledCheck) hasKeyOf(other SettledCheck) bool {
	return bytes.Equal(c.Key, other.Key) && spaceOf(c.NS) == spaceOf(other.NS)
}

// sameKey reports whether a check of a hold has a key. The namespace of a rule need not be given.
func sameKey(h *holds.Check, c *SettledCheck) bool {
	return bytes.Equal(h.Key, c.Key) && (len(c.NS) == 0 || spaceOf(h.NS) == spaceOf(c.NS))
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

// execute executes a settlement.
func (r *Request) execute(ctx context.Context, service Service, h *holds.Hold,
	s *holds.Settlement, names [][]string) (*Settled, *request.Failure) {
	most := make([][]int64, len(s.Ops))
	results := make([]twotier.Result, len(s.Ops))
	for i := range s.Ops {
		for j := range s.Ops[i].Checks[0].Limits {
			l := &s.Ops[i].Checks[0].Limits[j]
			most[i] = append(most[i], l.Max)
			l.Max = twotier.Unlimited
		}
	}
	if len(s.Ops) == 1 {
		results[0].Err = service.Do(ctx, &s.Ops[0], &results[0])
	} else {
		service.DoAll(ctx, s.Ops, results)
	}
	answer, renewed := &Settled{Repeated: true}, 0
	for i := range results {
		res := &results[i]
		if isOutOfReach(res.Err) {
			op := s.WithoutEvents(i)
			res.Err = service.Do(ctx, &op, res)
		}
		if res.Err == nil && s.Outcome(i, res) == holds.LeaseGone {
			op := s.WithoutLease(i)
			res.Err = service.Do(ctx, &op, res)
		}
		if res.Err != nil {
			return nil, failureOfSettling(h, res.Err)
		}
		switch s.Outcome(i, res) {
		case holds.Expired:
			return nil, endedFailure(h)
		case holds.Unsettled:
			return nil, failureOfSettling(h, errUnsettled)
		case holds.Renewed:
			renewed++
		case holds.Settled:
			answer.Repeated = false
			r.Holds.Tally.Settled(spaceOf(h.Checks[i].NS), h.Until)
		}
		for j := range most[i] {
			if exceeds(res, j, most[i][j]) && !slices.Contains(answer.Over, names[i][j]) {
				answer.Over = append(answer.Over, names[i][j])
			}
		}
	}
	if renewed == len(results) {
		return nil, &request.Failure{Kind: request.Gone, Field: "hold",
			Detail: "it was renewed: settle the id that the renewal returned"}
	}
	return answer, nil
}

// errUnsettled is the error of a settlement that a key's namespace refuses.
var errUnsettled = fmt.Errorf("%w: the store can't be asked for the counts of a key",
	twotier.ErrUnavailable)

// exceeds reports whether the count of a limit of a settled key is above the limit.
func exceeds(res *twotier.Result, limit int, most int64) bool {
	return len(res.Checks) > 0 && limit < len(res.Checks[0].Limits) &&
		res.Checks[0].Limits[limit].Count > most
}

// isOutOfReach reports whether an operation was refused because its time is farther back than its
// namespace covers. Events of that time are in no window any more.
func isOutOfReach(err error) bool {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	return ok && invalid.Field == "ts"
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
