package twotier

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/leaparray"
)

// Errors that operations return, possibly wrapped. Nothing was counted unless the error's comment
// states otherwise.
var (
	// ErrClosed is returned by every operation after Close.
	ErrClosed = errors.New("closed")
	// ErrUnknownOutcome means that a write may or may not have happened, or that it happened but
	// the store did not acknowledge it in time.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// ErrUnavailable means that no honest answer is possible right now; retrying later can help.
	ErrUnavailable = errors.New("unavailable")
	// ErrOverload means that one of this node's limits is reached (memory, waiting requests).
	ErrOverload = errors.New("overloaded")
	// ErrNotOwner means that another counter decides about the key.
	ErrNotOwner = errors.New("another node decides about this key")
	// ErrFull is an ErrOverload: there is no memory for another key, and nothing can be evicted.
	ErrFull = fmt.Errorf("%w: the memory for counts is full", ErrOverload)
	// ErrMaxKeys is an ErrOverload: the namespace has the maximum number of keys in memory, and
	// none of them can be evicted.
	ErrMaxKeys = fmt.Errorf("%w: the namespace has as many keys in memory as it may have",
		ErrOverload)
	// ErrBehind is an ErrOverload: so many keys wait for the store that another one would exceed
	// syncer.Options.MaxLag, and no room became free in time.
	ErrBehind = fmt.Errorf("%w: the store can't keep up with new keys", ErrOverload)
)

// RetryError is an ErrOverload with an estimate of its duration.
type RetryError struct {
	Err error
	// After estimates the time until there is room: more than 0, at most a minute.
	After time.Duration
}

// Error returns the text of Err.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// InvalidError refuses an operation because of one of its fields. It is returned before anything is
// counted.
type InvalidError struct {
	// Check and Limit are the positions of the offending check and limit, or -1 if the error
	// concerns neither.
	Check, Limit int
	// OfValues is set if the limit is one on different values, see ValuesOf.
	OfValues bool
	// Field is the name of the field within the check, the limit or the operation, as in the HTTP
	// API: "key", "window".
	Field string
	// Detail describes the error and a correct value.
	Detail string
}

// Error names the field and describes the error.
func (e *InvalidError) Error() string {
	field := e.Field
	if e.Limit >= 0 {
		field = fmt.Sprintf("limits[%d].%s", e.Limit, field)
		if e.OfValues {
			field = "value_" + field
		}
	}
	if e.Check >= 0 {
		field = fmt.Sprintf("checks[%d].%s", e.Check, field)
	}
	return field + ": " + e.Detail
}

// tooLong describes a limit without a window, or whose window a namespace does not cover, and the
// remedy.
func (l *Limit) tooLong(ladder *leaparray.Ladder, ns []byte) string {
	if IsValues(ns) {
		ns, _ = Accompanied(ns, nil)
	}
	if l.Longest() < 1 {
		return "neither a duration nor a calendar window that the owner of the key has; all " +
			"nodes need the same time zones"
	}
	name := FormatMillis(l.Window)
	if l.Period != nil {
		name = fmt.Sprintf("%v (up to %v)", l.Period, FormatMillis(l.Period.longest))
	}
	return fmt.Sprintf("%s is longer than the namespace covers (%v)%s", name,
		FormatMillis(ladder.Span()), ExtensionHint(ladder, string(ns), l.Longest()))
}

// ExtensionHint returns the end of an error about a window of so many milliseconds that the ladder
// of a namespace does not cover: the level to add. An empty namespace is the default one. The hint
// is empty if no ladder covers the window.
func ExtensionHint(ladder *leaparray.Ladder, ns string, window int64) string {
	level, ok := ladder.Extension(window)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; it needs `%v` in namespace %s", level, cmp.Or(ns, DefaultNamespace))
}

// OutOfReach is the error for a window that ends at ts and begins before the ladder's span.
func OutOfReach(op *Op, l *leaparray.Ladder, window, ts, now int64) error {
	return &InvalidError{Check: -1, Limit: -1, Field: op.timeField(), Detail: fmt.Sprintf(
		"a window of %v that ends %v ago begins before what the namespace keeps (%v)",
		FormatMillis(window), FormatMillis(now-ts), FormatMillis(l.Span()))}
}

// FormatDuration formats a duration as Go does but without trailing zero units, such as 24h rather
// than 24h0m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// FormatMillis formats milliseconds as [FormatDuration] does.
func FormatMillis(ms int64) string {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return fmt.Sprintf("%d ms", ms)
	}
	return FormatDuration(time.Duration(ms) * time.Millisecond)
}

// FormatWindow formats the window of a limit: its period, or its milliseconds if it has none.
func FormatWindow(ms int64, p *Period) string {
	if p != nil {
		return p.String()
	}
	return FormatMillis(ms)
}

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
