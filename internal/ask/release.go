package ask

import (
	"context"
	"errors"
	"log/slog"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
)

// Open begins to release the holds that nobody settles in time. Without a store, their deadlines
// end with this process.
func (h *Holds) Open(service Service, store holds.DeadlineStore, logger *slog.Logger) {
	d := &h.deadlines
	d.Now, d.Store, d.Logger = h.Now, store, logger
	d.Release = func(ctx context.Context, id string) error { return h.Release(ctx, service, id) }
	d.Open()
}

// Close stops releasing.
func (h *Holds) Close(ctx context.Context) { h.deadlines.Close(ctx) }

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
				"counted", "namespace", spaceOf(hold.Checks[i].NS))
		case res.Err != nil:
			return res.Err
		case s.Outcome(i, res) == holds.Unsettled:
			return twotier.ErrUnavailable
		}
	}
	h.deadlines.Remove(id, hold.Until)
	return nil
}
