package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

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
