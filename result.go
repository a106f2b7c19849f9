package twotier

import (
	"fmt"
	"slices"
	"strings"
)

// LimitResult is the state of one limit. Results are in the order of the limits.
type LimitResult struct {
	// Window, Max and Period are as in the limit.
	Window, Max int64
	Period      *Period
	// Count estimates the events in the window; the true number is in [Lo, Hi]. An Acquire sets
	// Count and Lo to the number its decision was based on, including n if it was admitted. Hi adds
	// the events that other counters may have counted, or may yet count, because this one has lent
	// them, see syncer.Counter.Lend, or because they have borrowed from the same owner.
	Count, Lo, Hi int64
	// BucketMS is the width of the buckets that were read: the window's edge is uncertain by at
	// most that.
	BucketMS int64
	// Error is the relative standard error of a number of different values, if it is an estimate.
	// Then the true number lies in [Lo, Hi] in 95 of 100 cases.
	Error float64
	// Refused is set if this limit refused (Acquire) or is exceeded (Add).
	Refused bool
}

// CheckResult is the outcome of one check.
type CheckResult struct {
	// Refused is set if any limit of this check refused.
	Refused bool
	// RetryAfter is how long to wait, in milliseconds, until this check alone could pass: 0 if it
	// did, -1 if it never can because n exceeds a limit by itself.
	RetryAfter int64
	// TS is the time of the count, in unix milliseconds: taking n back at this time undoes it. It
	// is 0 if nothing was counted, or taken back from the newest buckets.
	TS     int64
	Limits []LimitResult
}

// Result is the outcome of an [Op]. Its slices are reused by the next Do with the same Result.
type Result struct {
	// Err is set by DoAll only; Do returns it.
	Err error
	// Allowed is true for an Acquire that was admitted and an Add that exceeds none of its limits.
	Allowed bool
	// RetryAfter is the longest of the checks in milliseconds, -1 if the operation can never pass.
	RetryAfter int64
	Source     Source
	// AgeMS bounds the age of this node's knowledge of other writers' counts, in milliseconds.
	AgeMS    int64
	Degraded bool
	Checks   []CheckResult
	// Bans are the active bans among Op.Rules, Leases are the results of Op.Leases, and Values
	// those of Op.Values, one each: limits in shadow that would refuse are marked as well. A
	// counter leaves them empty.
	Bans   []BanResult
	Leases []LeaseResult
	Values []CheckResult
}

// Reset empties r, keeping the memory of its slices.
func (r *Result) Reset() {
	*r = Result{Checks: r.Checks[:0]}
}

// AddCheck appends an empty check result, reusing memory from an earlier use of r, and returns it.
func (r *Result) AddCheck() *CheckResult {
	if len(r.Checks) < cap(r.Checks) {
		r.Checks = r.Checks[:len(r.Checks)+1]
	} else {
		r.Checks = append(r.Checks, CheckResult{})
	}
	c := &r.Checks[len(r.Checks)-1]
	*c = CheckResult{Limits: c.Limits[:0]}
	return c
}

// Point is one bucket of a series: its start in unix milliseconds and its count.
type Point struct {
	Start, Count int64
}

// KeyCount is one row of a list of busiest keys. NS and Key are copies.
type KeyCount struct {
	NS, Key string
	Count   int64
}

// Verdict is the outcome of an acquire under a rule, or under a limit without a rule.
type Verdict uint8

// The verdicts.
const (
	Allowed Verdict = iota
	Refused
	// ShadowRefused is the verdict of a rule in shadow that would have refused.
	ShadowRefused
	// Near is the verdict of a rule that allows, on or in shadow, with a count at or above its
	// warning level, see Rule.Warn.
	Near
)

// VerdictCount is the number of verdicts.
const VerdictCount = 4

// verdicts are the names of the verdicts, in their order.
var verdicts = [VerdictCount]string{"allowed", "refused", "shadow_refused", "near"}

// String returns "allowed", "refused", "shadow_refused" or "near".
func (v Verdict) String() string { return verdicts[v] }

// ParseVerdict reads what String returns.
func ParseVerdict(text string) (Verdict, error) {
	i := slices.Index(verdicts[:], text)
	if i < 0 {
		last := VerdictCount - 1
		return 0, fmt.Errorf("%q is not one of %s and %s", text,
			strings.Join(verdicts[:last], ", "), verdicts[last])
	}
	return Verdict(i), nil
}

// VerdictOf returns the verdict of limits, given whether they refuse and whether their rule is in
// shadow.
func VerdictOf(refuses, shadow bool) Verdict {
	switch {
	case !refuses:
		return Allowed
	case shadow:
		return ShadowRefused
	}
	return Refused
}
