package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// BacktestRequest asks what rules would do: either those of a document, or some in force.
type BacktestRequest struct {
	// Document is a document of rules, in YAML or JSON. It need not be in force.
	Document string
	// Rules are names of rules in force.
	Rules []string
	// Top is how many of the busiest and of the most refused keys to look at, 1 to 1000. Default:
	// 1000.
	Top int
}

// Bounds are what a number is at least and at most.
type Bounds struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// BacktestAnswer is the answer to a BacktestRequest.
type BacktestAnswer struct {
	// LookedAt is how many keys were looked at, and Unread how many more could not be read.
	LookedAt int `json:"looked_at"`
	Unread   int `json:"unread"`
	// Silent are the nodes that did not say which of their keys are busy.
	Silent []string `json:"silent"`
	// RulesVersion is the version that rules with names are of; 0 for a document.
	RulesVersion int64 `json:"rules_version"`
	// Rules has one element for each rule.
	Rules []BacktestRule `json:"rules"`
}

// BacktestRule is what a rule would do, were it on.
type BacktestRule struct {
	Rule      string `json:"rule"`
	Namespace string `json:"ns"`
	// State is "on", "shadow" or "off".
	State string `json:"state"`
	// Distinct says that the rule has limits on different values, which are not replayed.
	Distinct bool `json:"distinct"`
	// LookedAt is how many keys of its namespace were looked at, and Refusing how many of them it
	// would refuse now.
	LookedAt int `json:"looked_at"`
	Refusing int `json:"refusing"`
	// Events is how many events they had in the last day, and Refused how many of those it would
	// have refused.
	Events  int64  `json:"events"`
	Refused Bounds `json:"refused"`
	// Keys are those that it would refuse now, and then those of which it may have refused
	// something. LeftOut is how many more there are.
	Keys    []BacktestKey `json:"keys"`
	LeftOut int           `json:"left_out"`
}

// BacktestKey is what a rule would do to a key.
type BacktestKey struct {
	Key string `json:"key"`
	// Refuses says that an acquire for one event would be refused now.
	Refuses bool `json:"refuses"`
	// Events is how many events the key had in the last day, and Refused how many of them the rule
	// would have refused.
	Events  int64  `json:"events"`
	Refused Bounds `json:"refused"`
	// Limits are those that the rule has for this key.
	Limits []BacktestLimit `json:"limits"`
}

// BacktestLimit is what a limit makes of a key.
type BacktestLimit struct {
	Window time.Duration
	Max    int64
	// Now is what the window that ends now holds, and Refuses says that it has no room.
	Now     Bounds
	Refuses bool
	// Peak is the most that any such window of the last day held, and Refused how many events this
	// limit alone would have refused.
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
	window, err := parseWindow(raw.Window)
	*l = BacktestLimit{window, raw.Max, raw.Now, raw.Refuses, raw.Peak, raw.Refused}
	return err
}

// Backtest asks which of the busiest and the most refused keys of the cluster rules would refuse
// now, and how many of their events of the last day they would have refused. Nothing is counted or
// changed. It may take 8 seconds: Options.Timeout should allow for that. A document with a mistake
// is an [ErrInvalid] that says where. Where nodes have an address for administration, it is served
// there, and not at the others.
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
	err = c.question(ctx, none, "POST", "/v1/backtest", body, &a)
	return a, err
}
