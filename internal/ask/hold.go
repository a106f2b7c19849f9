package ask

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/request"
)

// Holds makes and settles the holds of a node for its endpoints. While it is open, it releases
// holds that nobody settles in time.
type Holds struct {
	Sealer holds.Sealer
	// Now returns the time in unix milliseconds.
	Now func() int64
	// Tally counts them.
	Tally holds.Tally

	deadlines holds.Deadlines
}

// CheckHold returns why the operation in progress can't be held, or has to be. Limits in shadow on
// leases don't judge an operation without a hold.
func (r *Request) CheckHold(op *twotier.Op) *request.Failure {
	if op.Hold == 0 {
		r.leases = slices.DeleteFunc(r.leases, func(l twotier.Lease) bool {
			return l.Check >= r.op.checks && l.Shadow
		})
	}
	leases := len(r.leases)
	switch {
	case op.Hold == 0 && leases > 0 && r.leases[leases-1].Check >= r.op.checks:
		return request.FieldFailure("hold", "missing; a limit on how many are open at the same "+
			"time needs to know how long this one may be")
	case op.Hold == 0 && op.Release:
		return request.FieldFailure("on_expiry", "want it only together with hold")
	case op.Hold == 0:
	case r.Holds == nil:
		return request.FieldFailure("hold", "this server has no holds")
	case r.Holds.Sealer.Secret() == nil:
		return noSecretFailure()
	case op.Hold > twotier.MaxLease.Milliseconds():
		return request.FieldFailure("hold", "want at most 24h")
	case op.TS != 0:
		return request.FieldFailure("hold", "want no ts with it: a hold begins now")
	case op.Release && r.Holds.deadlines.IsFull():
		return &request.Failure{Kind: request.Overload, Field: "on_expiry",
			Detail: "this node has too many holds to release"}
	}
	r.releases = r.releases || op.Release
	return nil
}

// noSecretFailure is the failure of a request for or about a hold before this node has learned the
// secret.
func noSecretFailure() *request.Failure {
	return &request.Failure{Kind: request.Unavailable, Field: "hold",
		Detail: "this node has not been able to read the secret of holds from Redis yet"}
}

// HoldSize returns how long the id of the operation in progress can be, in bytes, and how many
// limits on leases the operation has.
func (r *Request) HoldSize() (id, leases int) {
	size := holds.Size
	for i := r.op.checks; i < len(r.checks); i++ {
		size += holds.CheckSize + len(r.checks[i].NS) + len(r.checks[i].Key)
	}
	for i := r.op.limits; i < len(r.limits); i++ {
		if size += holds.LimitSize; r.limits[i].Period != nil {
			size += len(r.limits[i].Period.String())
		}
	}
	for i := r.op.ruled; i < len(r.ruled); i++ {
		size += len(r.ruled[i].Rule.Name)
	}
	for i := len(r.leases) - 1; i >= 0 && r.leases[i].Check >= r.op.checks; i-- {
		leases++
	}
	return (4*size + 2) / 3, leases
}

// linkLeases gives each operation the leases of its checks.
func (r *Request) linkLeases() {
	next := 0
	for i, f := range r.forms {
		from := next
		for ; next < len(r.leases) && r.leases[next].Check < f.first+f.count; next++ {
			r.leases[next].Check -= f.first
		}
		if next > from {
			r.Ops[i].Leases = r.leases[from:next:next]
		}
	}
}

// AwaitDeadlines waits until the ends of the executed operations' holds are as safe as their
// counts, if these are acknowledged by Redis. Otherwise the results of the operations are errors.
func (r *Request) AwaitDeadlines(ctx context.Context, results []twotier.Result) {
	last := holds.Ticket(0)
	for i := range r.Ops {
		op := &r.Ops[i]
		if !op.Release || op.Ack < twotier.AckStore || results[i].Err != nil {
			continue
		}
		id, ticket := r.makeHold(i, &results[i])
		if r.made == nil {
			r.made = map[int]string{}
		}
		r.made[i], last = id, max(last, ticket)
		if ticket < 0 {
			results[i].Err = r.Holds.deadlines.Await(ctx, ticket)
		}
	}
	err := r.Holds.deadlines.Await(ctx, last)
	if err == nil {
		return
	}
	for i, id := range r.made {
		if id != "" {
			results[i].Err = err
		}
	}
}

// HoldID counts the hold that operation i has made with this result, and returns its id, or "" if
// it has made none. It is called once for each answer.
func (r *Request) HoldID(i int, res *twotier.Result) string {
	if id, made := r.made[i]; made {
		return id
	}
	id, _ := r.makeHold(i, res)
	return id
}

// makeHold is HoldID before anything was made.
func (r *Request) makeHold(i int, res *twotier.Result) (id string, ticket holds.Ticket) {
	op := &r.Ops[i]
	if op.Hold == 0 || !op.Counts(res) || len(res.Checks) < len(op.Checks) {
		return "", 0
	}
	h := holds.Hold{Until: op.Until, Release: op.Release,
		Checks: make([]holds.Check, len(op.Checks))}
	for j := range op.Checks {
		c := &op.Checks[j]
		one := &h.Checks[j]
		*one = holds.Check{NS: c.NS, Key: c.Key, N: c.N, TS: res.Checks[j].TS}
		if one.TS == 0 {
			one.TS = r.Holds.Now()
		}
		r.Holds.Tally.Move(holds.SpaceOf(c.NS), 0, h.Until)
		for k := range c.Limits {
			if of := r.RuleOf(i, j, k); of == nil {
				one.Limits = append(one.Limits, c.Limits[k])
			} else if of.Rule.Name == "" {
				one.Limits = append(one.Limits, twotier.Limit{Window: c.Limits[k].Window,
					Max: of.Limit().Max, Period: c.Limits[k].Period})
			} else if of.Index == 0 {
				one.Rules = append(one.Rules, of.Rule.Name)
			}
		}
	}
	for _, l := range op.Leases {
		h.Checks[l.Check].Leased = res.Allowed
	}
	id = r.Holds.Sealer.Seal(&h)
	if h.Release {
		ticket = r.Holds.deadlines.Add(id, h.Until)
	}
	return id, ticket
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
	if !h.IsOpen(now) {
		return nil, &request.Failure{Kind: request.Gone, Field: "hold",
			Detail: "it has ended: it can be settled for 10m, but not renewed"}
	}
	reset, err := wereReset(ctx, service, h, now)
	switch {
	case err != nil:
		return nil, failureOfSettling(h, err)
	case slices.Contains(reset, true):
		return nil, &request.Failure{Kind: request.Gone, Field: "hold",
			Detail: "its key was reset: settle it, and acquire again"}
	}
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
		r.Holds.Tally.Move(holds.SpaceOf(h.Checks[i].NS), h.Until, until)
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

// Open begins to release the holds that nobody settles in time. Without a store, their deadlines
// end with this process. memory bounds the bytes that they take; 0 means 64 MiB.
func (h *Holds) Open(service Service, store holds.DeadlineStore, memory int64,
	logger *slog.Logger) {
	d := &h.deadlines
	d.Now, d.Store, d.Memory, d.Logger = h.Now, store, memory, logger
	d.Release = func(ctx context.Context, id string) error { return h.Release(ctx, service, id) }
	d.Open()
}

// Close stops releasing.
func (h *Holds) Close() { h.deadlines.Close() }

// releaseRenewed makes sure that the keys of a hold whose renewal has succeeded are released at its
// end, although that of other keys has failed, so that nobody gets the id of the hold.
func (h *Holds) releaseRenewed(next *holds.Hold, results []twotier.Result) {
	part := *next
	part.Checks = nil
	for i := range results {
		if results[i].Err == nil && results[i].Allowed {
			part.Checks = append(part.Checks, next.Checks[i])
		}
	}
	if part.Release && len(part.Checks) > 0 {
		h.deadlines.Add(h.Sealer.Seal(&part), part.Until)
	}
}

// Release releases a hold that has ended, unless it was settled. The error means that it has to be
// tried again.
func (h *Holds) Release(ctx context.Context, service Service, id string) error {
	if h.Sealer.Secret() == nil {
		return noSecretFailure()
	}
	hold, err := h.Sealer.Open(id)
	if err != nil {
		return nil // of other data, whose secret is lost
	}
	s := hold.Expire()
	reset, err := wereReset(ctx, service, hold, h.Now())
	if err != nil {
		return err
	}
	for i := range s.Ops {
		if reset[i] {
			s.AfterReset(i, 0)
		}
	}
	results := make([]twotier.Result, len(s.Ops))
	service.DoAll(ctx, s.Ops, results)
	for i := range results {
		res := &results[i]
		if isOutOfReach(res.Err) {
			op := s.WithoutEvents(i)
			res.Err = service.Do(ctx, &op, res)
		}
		switch invalid, ok := errors.AsType[*twotier.InvalidError](res.Err); {
		case ok && invalid.Field == "hold":
			h.deadlines.Logger.Warn("a hold could not be released in time: what it counted stays "+
				"counted", "namespace", holds.SpaceOf(hold.Checks[i].NS))
		case res.Err != nil:
			return res.Err
		case s.Outcome(i, res) == holds.Unsettled:
			return twotier.ErrUnavailable
		}
	}
	h.deadlines.Remove(id, hold.Until)
	return nil
}
