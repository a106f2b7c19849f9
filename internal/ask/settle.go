package ask

import (
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
