package ask

import (
	"context"
	"errors"
	"log/slog"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
)

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
