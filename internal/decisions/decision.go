package decisions

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/trace"
)

// Decision is one verdict on an acquire, or on an addition of values: by one rule on one key, or by
// the key's limits without a rule. Its slices and pointers are views into memory of the request.
type Decision struct {
	// Door is the endpoint that the request came in on, such as "http".
	Door string
	// NS and Key are the judged key. An empty namespace is the default one.
	NS, Key []byte
	// N is the number of events requested or, if Distinct is set, of values: the limits are then on
	// different values.
	N        int64
	Distinct bool
	// Rule is the rule that judged, nil for limits without one. Version is its version of the
	// rules, 0 for limits that the request carried itself.
	Rule    *twotier.Rule
	Version int64
	Verdict twotier.Verdict
	// Repeated is set if another rule has had this verdict on the key in the same acquire.
	Repeated bool
	// Limits are the limits on events or values that judged. Max is the limit in the rule, whatever
	// its state. There are none if limits on leases alone judged.
	Limits []twotier.LimitResult
	// RetryAfter is in milliseconds, -1 for never.
	RetryAfter int64
	// Lease is a limit on leases that refused, and Ban a ban that is in force, if there are any.
	Lease *twotier.LeaseResult
	Ban   *twotier.BanResult
	// Trace finds the trace of the request; nil if traces are unknown.
	Trace trace.Source
}

// RuleName returns the name of the rule that judged, or "" if there is none.
func (d *Decision) RuleName() string {
	if d.Rule == nil {
		return ""
	}
	return d.Rule.Name
}
