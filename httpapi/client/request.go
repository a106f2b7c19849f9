package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"twotier.dev/twotier"
)

// Limit is one rule: at most Max events in any window of that length, or in each period.
type Limit struct {
	// Window is a whole number of milliseconds, at least one, and no longer than the namespace
	// covers (25 h unless configured otherwise); 0 if there is a Period.
	Window time.Duration
	// Max is 0 or more.
	Max int64
	// Period is a calendar window instead: hour, day, week or month, with an anchor after a dot and
	// a time zone after an @, such as "day@Asia/Shanghai" and "month.14@Europe/Lisbon". Default:
	// none.
	Period string
}

// Ack is the condition for a call that counts to return.
type Ack string

// The values of Ack.
const (
	// AckDefault is the server's configured default.
	AckDefault Ack = ""
	// AckMemory waits for the memory of a node: if the node is killed, its unflushed counts are
	// lost.
	AckMemory Ack = "memory"
	// AckRedis waits for Redis.
	AckRedis Ack = "redis"
	// AckReplica waits for a replica of Redis: the count survives a failover to it.
	AckReplica Ack = "replica"
	// AckDisk waits for the disk of Redis. It needs Redis 7.2 and an append-only file.
	AckDisk Ack = "disk"
)

// waitsForStore reports whether a call waits for more than memory.
func (a Ack) waitsForStore() bool { return a == AckRedis || a == AckReplica || a == AckDisk }

// AddRequest counts events of a key.
type AddRequest struct {
	// Namespace is 1 to 64 letters, digits, "_", "." and "-". Default: "default".
	Namespace string
	// Key is 1 to 256 bytes of UTF-8 without control characters.
	Key string
	// N is the number of events, -(2^31-1) to 2^31-1. 0 means 1. Negative takes events back: from
	// the buckets of At or, without it, from the newest buckets that hold something, and never more
	// than a bucket holds.
	N int64
	// At is when the events happened, in whole milliseconds, as far back as the namespace covers.
	// Default: now.
	At time.Time
	// Ack is the condition for the call to return.
	Ack Ack
	// Limits, up to 16, are compared after counting.
	Limits []Limit
	// Rules, up to 16, are names of the servers' rules; their limits are compared after Limits. The
	// rules of one request have one namespace. If Namespace is left out, the request counts there,
	// but then the client can't find the owner of the key, and calls any node.
	Rules []string
}

// CountRequest reads the counts of a key.
type CountRequest struct {
	// Namespace and Key are as in AddRequest.
	Namespace, Key string
	// Windows, up to 64 with Periods, are as in Limit. One of the two is required.
	Windows []time.Duration
	// Periods are as in Limit: their events from the period's start to At are counted.
	Periods []string
	// At is the end of the windows, in whole milliseconds. Default: now.
	At time.Time
}

// Check is one key with its limits.
type Check struct {
	// Namespace, Key, Limits and Rules are as in AddRequest. With neither limits nor rules, the
	// default rules of the namespace judge; if it has none, the request is refused.
	Namespace, Key string
	// N is the number of events that request to pass, up to 2^31-1. 0 means 1, or none if the check
	// has Values and no limit on events.
	N int64
	// Peek asks whether one more event could pass, and counts none. N must be 0.
	Peek   bool
	Limits []Limit
	Rules  []string
	// Concurrent, if positive, is how many holds of the key may be open at the same time. The
	// request must have a Hold.
	Concurrent int64
	// Values, up to 1,000, are texts of 1 to 1,024 bytes that are added to the key, as in a
	// DistinctRequest, if all events and values may pass. ValueLimits, up to 64, bound the
	// different ones, as do the Rules that have such limits. The request must have none of At,
	// Hold, CountDenied and Charge.
	Values      []string
	ValueLimits []Limit
}

// AcquireRequest requests that events may pass, and counts them if they may. Either all checks hold
// or nothing is counted.
type AcquireRequest struct {
	// Check is the only check, unless there are Checks.
	Check
	// Checks, up to 64, are several keys at once. With Checks, Check must be empty.
	Checks []Check
	// At and Ack are as in AddRequest.
	At  time.Time
	Ack Ack
	// CountDenied counts even if refused, unless a ban is active.
	CountDenied bool
	// Charge counts whatever the answer is: what it pays for has happened.
	Charge bool
	// DryRun only tests: the answer is the one that the request would get, but nothing is counted.
	DryRun bool
	// Hold, if positive, is how long what is counted can be settled, up to 24 hours, see
	// [Client.Settle].
	Hold time.Duration
	// Release releases the hold at its end if nobody has settled it. Without it, what it counted
	// stays counted.
	Release bool
}

// boolean is a boolean of a request, with its name in JSON.
type boolean struct {
	name string
	set  bool
}

func (r *AcquireRequest) booleans() []boolean {
	return []boolean{{"count_denied", r.CountDenied}, {"charge", r.Charge},
		{"dry_run", r.DryRun}}
}

// Op is one operation of a batch. Exactly one field is set.
type Op struct {
	Add      *AddRequest
	Count    *CountRequest
	Acquire  *AcquireRequest
	Distinct *DistinctRequest
}

// hashedPrefix is the prefix of every key that replaces another one. No other key that a [Gate]
// sends has it.
const hashedPrefix = "sha256:"

// maxKey is the longest key that a server accepts, in bytes.
const maxKey = 256

// SafeKey returns a key that a server accepts: key itself if it is 1 to 256 bytes of UTF-8 without
// control characters. Otherwise it is "sha256:" and the SHA-256 digest (FIPS 180-4) of its bytes in
// lower-case hexadecimal, 71 characters in all. A key that begins with "sha256:" is replaced as
// well, so that nobody can choose a key that is the replacement of another. The mapping is the same
// in every version, so counts under a replacement are always found again.
func SafeKey(key string) string {
	if acceptable(key) && !strings.HasPrefix(key, hashedPrefix) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashedPrefix + hex.EncodeToString(sum[:])
}

// acceptable reports whether a server accepts the key.
func acceptable(key string) bool {
	return key != "" && len(key) <= maxKey && utf8.ValidString(key) &&
		!strings.ContainsFunc(key, unicode.IsControl)
}

// IsActionAllowed reports whether a user may do this once more, at most limit times in any period,
// and counts it if so. The user and the action may be any texts. The clients for Python and Node.js
// count the same user and action under the same key, in the default namespace.
//
// Without an answer it returns false and the error, see [Client.Acquire]: whether to go on without
// a limit is up to the caller.
func (c *Client) IsActionAllowed(ctx context.Context, user, action string, period time.Duration,
	limit int64) (bool, error) {
	// The length separates texts that would read the same: "a:b" doing "c" and "a" doing "b:c".
	key := strconv.Itoa(utf8.RuneCountInString(user)) + ":" + user + ":" + action
	a, err := c.Acquire(ctx, AcquireRequest{Check: Check{Key: SafeKey(key),
		Limits: []Limit{{Window: period, Max: limit}}}})
	return a.Allowed, err
}

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
	Source twotier.Source
	// Degraded is set while Redis can't be reached.
	Degraded bool
}

// CountAnswer is the answer to a CountRequest.
type CountAnswer struct {
	// Counts has one element for each window, followed by one for each period.
	Counts []WindowCount
	Source twotier.Source
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

// CheckAnswer is the answer to one check.
type CheckAnswer struct {
	Allowed bool
	// Limits has one element for each limit: first the limits of the check, then the limits of its
	// rules, except rules that are off.
	Limits []LimitState
	// Values has one element for each limit on values: those of the check, then those of its rules.
	Values []DistinctCount
	// RetryAfter is the earliest time at which the check may be allowed, in whole milliseconds from
	// now: 0 if it was allowed, negative if it never will be.
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
	// CheckAnswer is the answer to the only check. If the request had Checks, it is allowed if all
	// are, has the longest RetryAfter, and lacks the rest.
	CheckAnswer
	// Checks has one element for each of the request's Checks.
	Checks []CheckAnswer
	// Near lists the limits of rules that allow the request, and whose counts have reached the
	// rule's warning level: NAME or NAME/WINDOW, after checks[i]. if the request had Checks.
	Near []string
	// Bans are the active bans under the rules that judged the request.
	Bans []Ban
	// RulesVersion is the version of the rules that judged, 0 if none did.
	RulesVersion int64
	Source       twotier.Source
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
	Source  twotier.Source
	// Degraded is set if the number may be too small.
	Degraded bool
}
