package ask

import (
	"context"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/request"
)

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
