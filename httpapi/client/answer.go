package client

import "time"

// Source says where an answer came from.
type Source string

// The values of Source.
const (
	// SourceMemory: the node that was asked owns the key.
	SourceMemory Source = "memory"
	// SourceOwner: the node that was asked had the owner answer.
	SourceOwner Source = "owner"
	// SourceShared: the key is hot, so the node that was asked counts it beside the owner and the
	// others.
	SourceShared Source = "shared"
	// SourceNear: the node that was asked remembered that the owner refuses.
	SourceNear Source = "near"
	// SourceRedis: computed in Redis.
	SourceRedis Source = "redis"
	// SourceFallback: given in place of an owner that the node can't reach.
	SourceFallback Source = "fallback"
	// SourceDegraded: from memory alone while Redis can't be reached.
	SourceDegraded Source = "degraded"
)

// WindowCount is the count of a window.
type WindowCount struct {
	// Window is as in the request.
	Window time.Duration
	// Count is the best estimate, Min is without the bucket that the window begins in and Max with
	// all of it.
	Count, Min, Max int64
	// Bucket is the width of the buckets that were read, the most by which the edge is blurred.
	// Only Count tells it.
	Bucket time.Duration
}

// AddAnswer is the answer to an AddRequest.
type AddAnswer struct {
	// Counts has one element for each limit, after counting.
	Counts []WindowCount
	// Over is set if any limit is exceeded.
	Over   bool
	Source Source
	// Degraded is set while Redis can't be reached.
	Degraded bool
}

// CountAnswer is the answer to a CountRequest.
type CountAnswer struct {
	// Counts has one element for each window.
	Counts []WindowCount
	Source Source
	// Age bounds how long ago the counts of other nodes were last seen, in whole milliseconds.
	Age time.Duration
	// Degraded is set while Redis can't be reached.
	Degraded bool
}

// LimitState is what is known of a limit.
type LimitState struct {
	// Window and Max are as in the request.
	Window time.Duration
	Max    int64
	// Count is what was decided on, with N if it was admitted. Remaining is Max-Count, not below 0.
	Count, Remaining int64
	// Refused is set if this limit stood in the way.
	Refused bool
}

// CheckAnswer is the part of an answer that is about one check.
type CheckAnswer struct {
	Key     string
	Allowed bool
	Limits  []LimitState
	// RetryAfter is as in AcquireAnswer.
	RetryAfter time.Duration
}

// AcquireAnswer is the answer to an AcquireRequest.
type AcquireAnswer struct {
	Allowed bool
	// Limits has one element for each limit, unless the request had Checks.
	Limits []LimitState
	// Checks has one element for each of the request's.
	Checks []CheckAnswer
	// RetryAfter is when it may be allowed at the earliest, in whole milliseconds: 0 if it was,
	// less than 0 if it never will be.
	RetryAfter time.Duration
	Source     Source
	// Degraded is set while Redis can't be reached.
	Degraded bool
}

// Result is the outcome of one operation of a batch: the answer of its kind, or an error as the
// call of its own would have.
type Result struct {
	Add     *AddAnswer
	Count   *CountAnswer
	Acquire *AcquireAnswer
	Err     error
}

// Point is one bucket of a series.
type Point struct {
	// Start is its beginning.
	Start time.Time
	Count int64
}

// Series are the buckets of a key over a window that ends now.
type Series struct {
	// Bucket is their width.
	Bucket time.Duration
	Points []Point
}

// KeyCount is one of the busiest keys.
type KeyCount struct {
	Namespace string `json:"ns"`
	Key       string `json:"key"`
	Count     int64  `json:"count"`
}
