package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reservation is a cost that was counted as an estimate because it is only known afterwards, such
// as the tokens of a language model or the bytes of an answer. If nobody settles it, for example
// because the process dies, the estimate stays counted: estimate high where a limit must hold, low
// where nobody may be turned away.
type Reservation struct {
	client *Client
	ack    Ack

	mu   sync.Mutex
	left []reserved // not settled yet
}

// reserved is a check that was counted.
type reserved struct {
	check Check
	at    time.Time
}

// Reserve is [Client.Acquire] of an estimate: the N of the request or of each of its checks. The
// reservation is nil if the limits refused it. A DryRun is refused with [ErrInvalid].
func (c *Client) Reserve(ctx context.Context, r AcquireRequest) (*Reservation, AcquireAnswer,
	error) {
	if r.DryRun {
		return nil, AcquireAnswer{}, fmt.Errorf("%w: a dry run reserves nothing", ErrInvalid)
	}
	a, err := c.Acquire(ctx, r)
	if err != nil || !a.Allowed {
		return nil, a, err
	}
	res := &Reservation{client: c, ack: r.Ack}
	if len(r.Checks) == 0 {
		res.left = []reserved{{r.Check, a.At}}
	}
	for i := range r.Checks {
		res.left = append(res.left, reserved{r.Checks[i], a.Checks[i].At})
	}
	return res, a, nil
}

// Settle corrects the estimate of every check to the actual cost, 0 or more, at the time at which
// the estimate was counted: in every window it is then as if the actual cost had been counted in
// the first place. A cost above the estimate is counted even if it exceeds a limit, because it was
// spent.
//
// If Settle returns an error, the unsettled checks may be settled by another call, except after
// [ErrUnknownOutcome]: these may have been settled. No check is settled twice.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: a cost of %d", ErrInvalid, actual)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var ops []Op
	var of []reserved
	for _, h := range r.left {
		// The rules provide the namespace if the check has none.
		if n := actual - max(1, h.check.N); n != 0 {
			of = append(of, h)
			ops = append(ops, Op{Add: &AddRequest{Namespace: h.check.Namespace, Key: h.check.Key,
				N: n, At: h.at, Ack: r.ack, Rules: h.check.Rules}})
		}
	}
	r.left = nil
	if len(ops) == 0 {
		return nil
	}
	results, err := r.client.Batch(ctx, ops)
	if err != nil {
		if !errors.Is(err, ErrUnknownOutcome) {
			r.left = of
		}
		return err
	}
	var failed []error
	for i := range results {
		if err := results[i].Err; err != nil {
			failed = append(failed, err)
			if !errors.Is(err, ErrUnknownOutcome) {
				r.left = append(r.left, of[i])
			}
		}
	}
	return errors.Join(failed...)
}
