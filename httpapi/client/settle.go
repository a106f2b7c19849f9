package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// Settlement is the outcome of settling a hold.
type Settlement struct {
	// Repeated is set if the hold was settled before, and nothing was changed.
	Repeated bool
	// Late is set if the hold had ended. The settlement counts nevertheless.
	Late bool
	// Over names the limits that are exceeded now: a rule and its window, or a limit of the request
	// such as limits[0]. Of several checks, each name begins with its check: checks[1].limits[0].
	Over []string
}

// OpenHolds returns how many holds of a key are open, of those made under a limit on concurrent
// ones. An empty namespace means the default one.
func (c *Client) OpenHolds(ctx context.Context, namespace, key string) (OpenHolds, error) {
	var raw struct {
		OpenHolds
		NextEndMS int64 `json:"next_end_ms"`
	}
	at := c.view.Load().table.owner(namespace, key)
	err := c.get(ctx, at, "/v1/holds", keyQuery(namespace, key), &raw)
	raw.NextEnd = millis(raw.NextEndMS)
	return raw.OpenHolds, err
}

// Settled is the final number of events of one key of a hold.
type Settled struct {
	Namespace, Key string
	N              int64
}

// Settle corrects the count of a hold to n events of each key, at the time of the hold, even if
// they exceed a limit, and up to ten minutes after the end of the hold. 0 releases the hold. It
// repeats the request if the outcome is unknown: a hold is settled once.
func (c *Client) Settle(ctx context.Context, hold string, n int64) (Settlement, error) {
	return c.settle(ctx, hold, strconv.AppendInt([]byte(`,"n":`), n, 10))
}

// SettleKeys is [Client.Settle] with a number for each key. The other keys of the hold stay as they
// were counted.
func (c *Client) SettleKeys(ctx context.Context, hold string,
	keys []Settled) (s Settlement, err error) {
	b := []byte(`,"checks":[`)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		at := len(b)
		if b, err = appendKey(b, k.Namespace, k.Key, 0, nil); err != nil {
			return s, err
		}
		b[at] = '{'
		b = append(appendNumber(b, "n", k.N), '}')
	}
	return c.settle(ctx, hold, append(b, ']'))
}

// settle sends a settlement, again if its outcome is unknown.
func (c *Client) settle(ctx context.Context, hold string,
	amounts []byte) (s Settlement, err error) {
	if !utf8.ValidString(hold) {
		return s, fmt.Errorf("%w: the hold is not UTF-8", ErrInvalid)
	}
	body := append(append(appendText([]byte(`{"hold":`), hold), amounts...), '}')
	ctx, cancel := context.WithDeadline(ctx, c.deadline(ctx))
	defer cancel()
	var unknown error
	for range 3 {
		err = c.queryAny(ctx, none, "POST", "/v1/settle", body, &s)
		if !errors.Is(err, ErrUnknownOutcome) {
			break
		}
		unknown = err
	}
	if err != nil && unknown != nil { // a later refusal is about that attempt alone
		err = unknown
	}
	return s, err
}

// Renew moves the end of a hold to some time from now, at most 24 hours after it began. It returns
// the id that takes the place of the old one, and its end. After [ErrUnknownOutcome] the hold may
// have been renewed, and the new id is lost: it stays open until the new end.
func (c *Client) Renew(ctx context.Context, hold string, lasts time.Duration) (id string,
	until time.Time, err error) {
	if !utf8.ValidString(hold) {
		return "", until, fmt.Errorf("%w: the hold is not UTF-8", ErrInvalid)
	}
	body := appendWindow(append(appendText([]byte(`{"hold":`), hold), `,"for":"`...), lasts)
	var raw struct {
		Hold  string
		Until int64
	}
	err = c.queryAny(ctx, none, "POST", "/v1/renew", append(body, `"}`...), &raw)
	if err != nil {
		return "", until, err
	}
	return raw.Hold, time.UnixMilli(raw.Until), nil
}

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
