package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
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
	query := url.Values{"key": {key}}
	if namespace != "" {
		query.Set("ns", namespace)
	}
	var raw struct {
		OpenHolds
		NextEndMS int64 `json:"next_end_ms"`
	}
	at := c.view.Load().table.owner(namespace, key)
	err := c.queryAny(ctx, at, "GET", "/v1/holds?"+query.Encode(), nil, &raw)
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
func (c *Client) SettleKeys(ctx context.Context, hold string, keys []Settled) (Settlement, error) {
	b := []byte(`,"checks":[`)
	for i, k := range keys {
		if !utf8.ValidString(k.Namespace) || !utf8.ValidString(k.Key) {
			return Settlement{}, fmt.Errorf("%w: the key or its namespace is not UTF-8", ErrInvalid)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"key":`...), k.Key)
		if k.Namespace != "" {
			b = appendText(append(b, `,"ns":`...), k.Namespace)
		}
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
