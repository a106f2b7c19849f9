package explain

import (
	"twotier.dev/twotier/internal/refusallog"
)

// Explanation describes the state of a key. Times are unix milliseconds.
type Explanation struct {
	Key string `json:"key"`
	NS  string `json:"ns"`
	At  int64  `json:"at"`
	// Node is the node that answers. Owner is the node that decides about the key; it is empty if
	// Redis does.
	Node  string `json:"node"`
	Owner string `json:"owner,omitempty"`
	// Source and Degraded are as in other answers.
	Source       string `json:"source"`
	Degraded     bool   `json:"degraded,omitempty"`
	RulesVersion int64  `json:"rules_version"`
	// Refusal is the refusal with the id of the query.
	Refusal *refusallog.Refusal `json:"refusal,omitempty"`
	// Ban is the ban that ends last.
	Ban *Ban `json:"ban,omitempty"`
	// Rules has the rules of the namespace by name, and then the limits without a rule in recent
	// refusals.
	Rules []Rule `json:"rules,omitempty"`
	// Holds is empty, or has one element.
	Holds []Holds `json:"holds"`
	// Refusals are by the rule of the query, or by all if it has none, newest first.
	Refusals []refusallog.Refusal `json:"refusals"`
}

// Ban is a ban in force.
type Ban struct {
	Rule  string `json:"rule"`
	Until int64  `json:"until"`
}

// Holds describes the open holds of a key. NextEnd is how many milliseconds later the first of them
// ends.
type Holds struct {
	Open    int64 `json:"open"`
	NextEnd int64 `json:"next_end_ms,omitempty"`
}

// Rule is the verdict of a rule, or of limits without a rule, on one more event of the key.
type Rule struct {
	// Rule is empty for limits without a rule.
	Rule  string `json:"rule"`
	State string `json:"state"`
	// Passes is the verdict on a request for one event or, for a rule that judges only values, for
	// one new value. Rules in shadow or off pass everything.
	Passes bool `json:"passes"`
	// PassesAt is when it passes if nothing else is counted. It is left out if it passes now, or if
	// the time is unknown.
	PassesAt int64 `json:"passes_at,omitempty"`
	// Never means that waiting does not help.
	Never bool `json:"never,omitempty"`
	// WouldRefuse means that the rule, which is in shadow, would refuse if it were on.
	WouldRefuse bool `json:"would_refuse,omitempty"`
	// Unasked means that no request has asked for the rule within a day: although it would refuse,
	// it judges nothing.
	Unasked bool `json:"unasked,omitempty"`
	// BannedUntil is the end of the rule's ban of the key.
	BannedUntil int64       `json:"banned_until,omitempty"`
	Windows     []Window    `json:"windows,omitempty"`
	Distinct    []Values    `json:"distinct,omitempty"`
	Concurrent  *Concurrent `json:"concurrent,omitempty"`
	// Error is the reason why the rule can't judge the key, such as a window that is too long.
	Error string `json:"error,omitempty"`
}

// Window is a limit on events.
type Window struct {
	Window string `json:"window"`
	Limit  int64  `json:"limit"`
	// Count is the number that decisions compare with the limit, between Min and Max.
	Count     int64 `json:"count"`
	Min       int64 `json:"min"`
	Max       int64 `json:"max"`
	Remaining int64 `json:"remaining"`
	// Lent is how many events other nodes may count in addition.
	Lent     int64 `json:"lent,omitempty"`
	BucketMS int64 `json:"bucket_ms"`
	// Buckets are the largest ones in the window, the largest first, without the events before the
	// window: their sum is at most Max. There are none if they can't be read now.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// Bucket is the count of a period of time.
type Bucket struct {
	Start   int64 `json:"start"`
	WidthMS int64 `json:"width_ms"`
	Count   int64 `json:"count"`
}

// Values is a limit on different values. Passes is the verdict on one new value.
type Values struct {
	Window string `json:"window"`
	Limit  int64  `json:"limit"`
	Count  int64  `json:"count"`
	// Error is the relative standard error of the count, 0 if it is exact.
	Error     float64 `json:"error"`
	Remaining int64   `json:"remaining"`
	Passes    bool    `json:"passes"`
}

// Concurrent is a limit on open leases.
type Concurrent struct {
	Limit     int64 `json:"limit"`
	Count     int64 `json:"count"`
	Remaining int64 `json:"remaining"`
}
