package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"twotier.dev/twotier"
)

// Series returns the buckets of a key over a window that ends now. An empty namespace means the
// default one.
func (c *Client) Series(ctx context.Context, namespace, key string,
	window time.Duration) (Series, error) {
	query := keyQuery(namespace, key)
	query.Set("window", string(appendWindow(nil, window)))
	var raw struct {
		BucketMS int64      `json:"bucket_ms"`
		Points   [][2]int64 `json:"points"`
	}
	at := c.view.Load().table.owner(namespace, key)
	if err := c.get(ctx, at, "/v1/series", query, &raw); err != nil {
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
func (c *Client) Top(ctx context.Context, n int, window time.Duration) ([]twotier.KeyCount, error) {
	return c.top(ctx, n, window, url.Values{})
}

// TopRefused is Top for the keys that refused the most acquires: a KeyCount has the number of
// refusals.
func (c *Client) TopRefused(ctx context.Context, n int,
	window time.Duration) ([]twotier.KeyCount, error) {
	return c.top(ctx, n, window, url.Values{"by": {"refused"}})
}

// TopShadowRefused is TopRefused for refusals by rules in shadow.
func (c *Client) TopShadowRefused(ctx context.Context, n int,
	window time.Duration) ([]twotier.KeyCount, error) {
	return c.top(ctx, n, window, url.Values{"by": {"shadow"}})
}

// TopConcurrent returns up to n (1 to 1000) of the keys of the cluster with the most open holds, of
// those made under a limit on concurrent ones, largest first.
func (c *Client) TopConcurrent(ctx context.Context, n int) ([]twotier.KeyCount, error) {
	return c.list(ctx, n, url.Values{"by": {"concurrent"}})
}

func (c *Client) top(ctx context.Context, n int, window time.Duration,
	query url.Values) ([]twotier.KeyCount, error) {
	query.Set("window", string(appendWindow(nil, window)))
	return c.list(ctx, n, query)
}

func (c *Client) list(ctx context.Context, n int, query url.Values) ([]twotier.KeyCount, error) {
	query.Set("n", strconv.Itoa(n))
	var raw struct {
		Keys []twotier.KeyCount
	}
	err := c.get(ctx, none, "/v1/top", query, &raw)
	return raw.Keys, err
}

// Reset forgets a key in memory on every node and in Redis. If an answer is lost, the key may be
// reset twice.
func (c *Client) Reset(ctx context.Context, namespace, key string) error {
	body, err := appendKey(nil, namespace, key, 0, nil)
	if err != nil {
		return err
	}
	body[0] = '{'
	var raw struct{}
	return c.queryAny(ctx, c.view.Load().table.owner(namespace, key), "POST", "/v1/reset",
		append(body, '}'), &raw)
}

// keyQuery returns a query about a key.
func keyQuery(namespace, key string) url.Values {
	query := url.Values{"key": {key}}
	if namespace != "" {
		query.Set("ns", namespace)
	}
	return query
}

// get asks one node after another with a GET, see queryAny.
func (c *Client) get(ctx context.Context, at int, path string, query url.Values, answer any) error {
	return c.queryAny(ctx, at, "GET", path+"?"+query.Encode(), nil, answer)
}

// queryAny asks one node after another until one answers, and decodes the answer. A request with a
// body has an unknown outcome after an attempt without an answer, unless a later one succeeds.
func (c *Client) queryAny(ctx context.Context, at int, method, uri string, body []byte,
	answer any) error {
	var tried trail
	by := c.deadline(ctx)
	err, sent := ErrUnavailable, false // an attempt without an answer may have been executed
	for l := c.nextNode(ctx, by, at, &tried); l != nil; l = c.nextNode(ctx, by, at, &tried) {
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
	}
	return c.noAnswer(ctx, by, err)
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
	err := c.get(ctx, at, "/v1/explain", query, &answer)
	return answer, err
}

// BacktestRequest requests the effect of rules, either from a document or in force.
type BacktestRequest struct {
	// Document is a document of rules, in YAML or JSON. It need not be in force.
	Document string
	// Rules are names of rules in force.
	Rules []string
	// Top is how many of the busiest and of the most refused keys to read, 1 to 1000. Default:
	// 1000.
	Top int
}

// Bounds are the lower and the upper bound of a number.
type Bounds struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// BacktestAnswer is the answer to a BacktestRequest.
type BacktestAnswer struct {
	// LookedAt is the number of keys read, and Unread how many more could not be read.
	LookedAt int `json:"looked_at"`
	Unread   int `json:"unread"`
	// Silent are the nodes that did not report their busy keys.
	Silent []string `json:"silent"`
	// RulesVersion is the version of the named rules; 0 for a document.
	RulesVersion int64 `json:"rules_version"`
	// Rules has one element for each rule.
	Rules []BacktestRule `json:"rules"`
}

// BacktestRule is the effect that a rule would have if it were on.
type BacktestRule struct {
	Rule      string `json:"rule"`
	Namespace string `json:"ns"`
	// State is "on", "shadow" or "off".
	State string `json:"state"`
	// Distinct marks a rule with limits on different values, which are not replayed.
	Distinct bool `json:"distinct"`
	// LookedAt is the number of keys read in its namespace, and Refusing how many of them it would
	// refuse now.
	LookedAt int `json:"looked_at"`
	Refusing int `json:"refusing"`
	// Events is their number of events in the last day, and Refused the number of these that the
	// rule would have refused.
	Events  int64  `json:"events"`
	Refused Bounds `json:"refused"`
	// Keys are the keys that the rule would refuse now, followed by the other keys with possible
	// refusals. LeftOut is how many more there are.
	Keys    []BacktestKey `json:"keys"`
	LeftOut int           `json:"left_out"`
}

// BacktestKey is the effect that a rule would have on a key.
type BacktestKey struct {
	Key string `json:"key"`
	// Refuses reports whether the rule would refuse an acquire for one event now.
	Refuses bool `json:"refuses"`
	// Events is the key's number of events in the last day, and Refused how many of them the rule
	// would have refused.
	Events  int64  `json:"events"`
	Refused Bounds `json:"refused"`
	// Limits are the rule's limits for this key.
	Limits []BacktestLimit `json:"limits"`
}

// BacktestLimit is the effect of a limit on a key.
type BacktestLimit struct {
	// Window, Period and Max are as in the rule, see [Limit].
	Window time.Duration
	Period string
	Max    int64
	// Now is the count of the window that ends now, and Refuses reports that it has no room.
	Now     Bounds
	Refuses bool
	// Peak is the largest count of any such window of the last day, and Refused the number of
	// events that this limit alone would have refused.
	Peak, Refused Bounds
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *BacktestLimit) UnmarshalJSON(text []byte) error {
	var raw struct {
		Window             string
		Max                int64
		Now, Peak, Refused Bounds
		Refuses            bool
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	window, period, err := parseLimitWindow(raw.Window)
	*l = BacktestLimit{window, period, raw.Max, raw.Now, raw.Refuses, raw.Peak, raw.Refused}
	return err
}

// Backtest predicts which of the busiest and the most refused keys of the cluster rules would
// refuse now, and how many of their events of the last day they would have refused. Nothing is
// counted or changed. It may take 8 seconds: Options.Timeout should allow for that. A mistake in a
// document is an [ErrInvalid] with its place. Nodes with an address for administration serve it
// only there.
func (c *Client) Backtest(ctx context.Context, r BacktestRequest) (a BacktestAnswer, err error) {
	if (r.Document == "") == (len(r.Rules) == 0) {
		return a, fmt.Errorf("%w: want either Document or Rules", ErrInvalid)
	}
	ask := map[string]any{"rules": r.Rules}
	if r.Document != "" {
		ask["rules"] = r.Document
	}
	if r.Top != 0 {
		ask["top"] = r.Top
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return a, err
	}
	err = c.queryAny(ctx, none, "POST", "/v1/backtest", body, &a)
	if errors.Is(err, ErrUnknownOutcome) { // it counts nothing
		err = fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return a, err
}
