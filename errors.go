package twotier

import (
	"errors"
	"fmt"
	"time"
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
