package decisions

import (
	"strconv"

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
	// Refusal is the id of a refusal, once the log of refusals has recorded it.
	Refusal RefusalID
}

// Sink receives decisions. It is safe for concurrent use.
type Sink interface {
	// Receives reports whether the sink receives decisions with this verdict. It is asked once.
	Receives(v twotier.Verdict) bool
	// Record records a decision. It keeps nothing of d, and doesn't wait.
	Record(d *Decision)
}

// RuleName returns the name of the rule that judged, or "" if there is none.
func (d *Decision) RuleName() string {
	if d.Rule == nil {
		return ""
	}
	return d.Rule.Name
}

// Func is a [Sink] that receives all decisions.
type Func func(d *Decision)

// Receives implements [Sink].
func (Func) Receives(twotier.Verdict) bool { return true }

// Record implements [Sink].
func (f Func) Record(d *Decision) { f(d) }

// RefusalID identifies a recorded refusal. The zero value identifies none.
type RefusalID struct {
	// Prefix is the name of the node, escaped as in a URL, and a dot.
	Prefix string
	Number uint64
}

// IsZero reports whether the ID identifies no refusal.
func (id RefusalID) IsZero() bool { return id.Prefix == "" }

// Append appends the id as text: the prefix, and letters and digits. Nothing in it needs escaping
// in JSON or a header.
func (id RefusalID) Append(b []byte) []byte {
	return strconv.AppendUint(append(b, id.Prefix...), id.Number, 36)
}

// String returns the id as text.
func (id RefusalID) String() string { return string(id.Append(nil)) }
