package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"
)

// Series returns the buckets of a key over a window that ends now. An empty namespace means the
// default one.
func (c *Client) Series(ctx context.Context, namespace, key string,
	window time.Duration) (Series, error) {
	query := url.Values{"key": {key}, "window": {string(appendWindow(nil, window))}}
	if namespace != "" {
		query.Set("ns", namespace)
	}
	var raw struct {
		BucketMS int64      `json:"bucket_ms"`
		Points   [][2]int64 `json:"points"`
	}
	at := c.view.Load().table.owner(namespace, key)
	if err := c.queryAny(ctx, at, "GET", "/v1/series?"+query.Encode(), nil, &raw); err != nil {
		return Series{}, err
	}
	s := Series{Bucket: millis(raw.BucketMS), Points: make([]Point, len(raw.Points))}
	for i, p := range raw.Points {
		s.Points[i] = Point{Start: time.UnixMilli(p[0]), Count: p[1]}
	}
	return s, nil
}

// Top returns up to n (1 to 1000) of the busiest keys of the cluster over a window that ends now,
// largest first.
func (c *Client) Top(ctx context.Context, n int, window time.Duration) ([]KeyCount, error) {
	return c.top(ctx, n, window, url.Values{})
}

// TopRefused is Top for the keys that refused the most acquires: a KeyCount has the number of
// refusals.
func (c *Client) TopRefused(ctx context.Context, n int, window time.Duration) ([]KeyCount, error) {
	return c.top(ctx, n, window, url.Values{"by": {"refused"}})
}

// TopShadowRefused is TopRefused for refusals by rules in shadow.
func (c *Client) TopShadowRefused(ctx context.Context, n int,
	window time.Duration) ([]KeyCount, error) {
	return c.top(ctx, n, window, url.Values{"by": {"shadow"}})
}

// TopConcurrent returns up to n (1 to 1000) of the keys of the cluster with the most open holds, of
// those made under a limit on concurrent ones, largest first.
func (c *Client) TopConcurrent(ctx context.Context, n int) ([]KeyCount, error) {
	return c.list(ctx, n, url.Values{"by": {"concurrent"}})
}

func (c *Client) top(ctx context.Context, n int, window time.Duration,
	query url.Values) ([]KeyCount, error) {
	query.Set("window", string(appendWindow(nil, window)))
	return c.list(ctx, n, query)
}

func (c *Client) list(ctx context.Context, n int, query url.Values) ([]KeyCount, error) {
	query.Set("n", strconv.Itoa(n))
	var raw struct {
		Keys []KeyCount `json:"keys"`
	}
	err := c.queryAny(ctx, none, "GET", "/v1/top?"+query.Encode(), nil, &raw)
	return raw.Keys, err
}

// Reset forgets a key in memory on every node and in Redis. If an answer is lost, the key may be
// reset twice.
func (c *Client) Reset(ctx context.Context, namespace, key string) error {
	if !utf8.ValidString(namespace) || !utf8.ValidString(key) {
		return fmt.Errorf("%w: the key or its namespace is not UTF-8", ErrInvalid)
	}
	body := appendText([]byte(`{"key":`), key)
	if namespace != "" {
		body = appendText(append(body, `,"ns":`...), namespace)
	}
	var raw struct{}
	return c.queryAny(ctx, c.view.Load().table.owner(namespace, key), "POST", "/v1/reset",
		append(body, '}'), &raw)
}

// queryAny asks one node after another until one answers, and decodes the answer. A request with a
// body has an unknown outcome after an attempt without an answer, unless a later one succeeds.
func (c *Client) queryAny(ctx context.Context, at int, method, uri string, body []byte,
	answer any) error {
	var tried trail
	by := c.deadline(ctx)
	err, sent := ErrUnavailable, false // an attempt without an answer may have been executed
	for !tried.full() && ctx.Err() == nil && c.ctx.Err() == nil && time.Now().Before(by) {
		l, _ := c.chooseNode(at, &tried)
		if l == nil {
			break
		}
		tried.add(l)
		status, text, lost, e := l.ask(ctx, method, uri, body, by)
		sent = sent || lost
		if err = e; e != nil {
			l.down(e)
			continue
		}
		if status != 200 {
			p := readProblem(status, text)
			if err = p; errors.Is(err, ErrUnavailable) {
				sent = sent || !p.isFromTwotier() // the proxy's node may have received it
				continue
			}
			if sent && body != nil {
				return fmt.Errorf("%w: %v", ErrUnknownOutcome, err)
			}
			return err
		}
		if json.Unmarshal(text, answer) != nil {
			return unknownOutcomeError(body != nil, errAnswer)
		}
		return nil
	}
	switch {
	case sent && body != nil && ctx.Err() != nil:
		return unknownOutcomeError(true, ctx.Err())
	case sent && body != nil:
		return fmt.Errorf("%w: %v", ErrUnknownOutcome, err)
	case c.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// ExplainRequest names a key, or the refusal with an ID.
type ExplainRequest struct {
	// Namespace is empty for the default one, or for that of the rule.
	Namespace, Key string
	// Rule selects a rule; empty selects all rules of the namespace.
	Rule string
	// ID is the id of a refusal, in place of all others.
	ID string
}

// Explain returns why a key is refused, as the JSON of GET /v1/explain. Any node explains the
// refusals of all others. The error is a [Problem] with status 404 if there is no refusal with the
// id, or it is older than an hour.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (json.RawMessage, error) {
	query, at := url.Values{}, none
	for name, value := range map[string]string{"ns": r.Namespace, "key": r.Key, "rule": r.Rule,
		"id": r.ID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if r.Key != "" && r.Rule == "" {
		at = c.view.Load().table.owner(r.Namespace, r.Key)
	}
	var answer json.RawMessage
	err := c.queryAny(ctx, at, "GET", "/v1/explain?"+query.Encode(), nil, &answer)
	return answer, err
}
