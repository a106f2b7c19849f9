package client

import "time"

// Source is the origin of an answer.
type Source string

// The values of Source.
const (
	// SourceMemory: the receiving node, which owns the key.
	SourceMemory Source = "memory"
	// SourceOwner: the owner, to which the receiving node forwarded the call.
	SourceOwner Source = "owner"
	// SourceNear: the receiving node in place of the owner, which had refused a moment ago or lends
	// it a part of the key's remaining limits.
	SourceNear Source = "near"
	// SourceRedis: a script in Redis.
	SourceRedis Source = "redis"
	// SourceFallback: the receiving node, in place of an owner that it can't reach.
	SourceFallback Source = "fallback"
	// SourceDegraded: memory alone, while Redis can't be reached.
	SourceDegraded Source = "degraded"
)

// WindowCount is the count of a window.
type WindowCount struct {
	// Window and Period are as in the request, or in the rule.
	Window time.Duration
	Period string
	// Start and End are the times of the period that was counted; zero without a Period.
	Start, End time.Time
	// Count is the best estimate. Min leaves out the bucket in which the window begins, Max
	// includes all of it.
	Count, Min, Max int64
	// Bucket is the width of the buckets read: the window's edge is uncertain by at most that. Only
	// set by Count.
	Bucket time.Duration
	// Rule is the name of the rule with this window, empty if the request has it itself. Shadow is
	// set if that rule is in shadow.
	Rule   string
	Shadow bool
}

// AddAnswer is the answer to an AddRequest.
type AddAnswer struct {
	// Counts has one element for each limit, after counting: first the limits of the request, then
	// the limits of its rules, except rules that are off.
	Counts []WindowCount
	// Over is set if any limit is exceeded.
	Over bool
	// At is the time of counting, in whole milliseconds: taking N back at this time undoes it. It
	// is zero if events were taken back without a time.
	At     time.Time
	Source Source
	// Degraded is set while Redis can't be reached.
	Degraded bool
}

// CountAnswer is the answer to a CountRequest.
type CountAnswer struct {
	// Counts has one element for each window, followed by one for each period.
	Counts []WindowCount
	Source Source
	// Age bounds how far this node lags behind the counts of other nodes, in whole milliseconds.
	Age time.Duration
	// Degraded is set while Redis can't be reached.
	Degraded bool
}

// LimitState is the state of one limit.
type LimitState struct {
	// Window, Period and Max are as in the request, or in the rule.
	Window time.Duration
	Period string
	Max    int64
	// Start and End are the times of the period that was compared: at End the count is 0 again.
	// They are zero without a Period.
	Start, End time.Time
	// Concurrent means that the limit is on open holds: Count is how many are open. It has no
	// Window.
	Concurrent bool
	// Count is the number the decision was based on, including N if it was admitted. Remaining is
	// Max-Count, but at least 0.
	Count, Remaining int64
	// Lent is how many more events of a hot key other nodes may have counted, or may yet count. A
	// refusal may be early by at most that.
	Lent int64
	// Refused is set if this limit refused, or would have refused outside of shadow.
	Refused bool
	// Rule is the name of the rule with this limit, empty if the request has it itself. Shadow is
	// set if the rule, the namespace or the node is in shadow, so that the limit refuses nothing.
	Rule   string
	Shadow bool
}

// CheckAnswer is the part of an answer about one check.
type CheckAnswer struct {
	Key     string
	Allowed bool
	// Limits is as in AcquireAnswer.
	Limits []LimitState
	// Values is as in AcquireAnswer.
	Values []DistinctCount
	// RetryAfter is as in AcquireAnswer.
	RetryAfter time.Duration
	// At is the time at which the check was counted, in whole milliseconds: taking N back at this
	// time undoes it. It is zero if nothing was counted.
	At time.Time
}

// Ban is a key that a rule has banned: until the end of the ban it refuses every request.
type Ban struct {
	Rule, Key string
	// Until is when the ban ends, the same in all answers about it.
	Until time.Time
	// Started is set if this refusal started the ban.
	Started bool
}

// AcquireAnswer is the answer to an AcquireRequest.
type AcquireAnswer struct {
	Allowed bool
	// Limits has one element for each limit, unless the request had Checks: first the limits of the
	// request, then the limits of its rules, except rules that are off.
	Limits []LimitState
	// Values has one element for each limit on values: those of the request, then those of its
	// rules.
	Values []DistinctCount
	// Checks has one element for each of the request's Checks.
	Checks []CheckAnswer
	// Near lists the limits of rules that allow the request, and whose counts have reached the
	// rule's warning level: NAME or NAME/WINDOW, after checks[i]. if the request had Checks.
	Near []string
	// Bans are the active bans under the rules that judged the request.
	Bans []Ban
	// RulesVersion is the version of the rules that judged, 0 if none did.
	RulesVersion int64
	// RetryAfter is the earliest time at which the request may be allowed, in whole milliseconds
	// from now: 0 if it was allowed, negative if it never will be.
	RetryAfter time.Duration
	// At is as in CheckAnswer, unless the request had Checks, whose answers have it.
	At     time.Time
	Source Source
	// Degraded is set while Redis can't be reached.
	Degraded bool
	// Refusal is the id of the refusal, which [Client.Explain] accepts for an hour; empty if it was
	// allowed.
	Refusal string
	// Hold is the id of the hold, and Until its end. Hold is empty if nothing was counted.
	Hold  string
	Until time.Time
}

// Result is the outcome of one operation of a batch: the answer for its kind, or the error that a
// single call would have returned.
type Result struct {
	Add      *AddAnswer
	Count    *CountAnswer
	Acquire  *AcquireAnswer
	Distinct *DistinctAnswer
	Err      error
}

// Point is one bucket of a series.
type Point struct {
	// Start is the beginning of the bucket.
	Start time.Time
	Count int64
}

// Series holds the buckets of a key over a window that ends now.
type Series struct {
	// Bucket is the width of a bucket.
	Bucket time.Duration
	Points []Point
}

// OpenHolds is the number of open holds of a key, of those made under a limit on concurrent ones.
type OpenHolds struct {
	Open int64
	// NextEnd is the time until the first of them ends by itself, 0 if it is unknown.
	NextEnd time.Duration
	Source  Source
	// Degraded is set if the number may be too small.
	Degraded bool
}

// KeyCount is one of the busiest keys.
type KeyCount struct {
	Namespace string `json:"ns"`
	Key       string `json:"key"`
	Count     int64  `json:"count"`
}
