package scripts

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// IsRefusal reports whether the server answered with an error.
func IsRefusal(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// IsTransient reports whether a server refuses because of a passing state: it is moving a slot,
// starting or changing roles.
func IsTransient(err error) bool {
	for _, prefix := range []string{"TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN", "LOADING",
		"MASTERDOWN", "READONLY", "NOSCRIPT"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// Classify returns the outcome of a call that failed with this error or whose answer can't be
// decoded: refused, not applied or, if any attempt to send it may have run it, unknown. It also
// marks a Redis that is only late. If an earlier attempt may have run the call and Redis refused
// the last one, Redis can be reached: it is late.
func (c *Call) Classify(err error) error {
	if c.MayHaveRun || mayHaveRun(err) {
		return MarkLate(fmt.Errorf("%w: %w", twotier.ErrUnknownOutcome, err),
			c.Late || IsRefusal(err))
	}
	return MarkLate(NotApplied(err), c.Late || IsBusy(err))
}

// NotApplied wraps the error of a call that was certainly not carried out. Any answer of a server,
// even that it is loading its data or serves no such slot, is a refusal: the server can be reached.
func NotApplied(err error) error {
	if IsRefusal(err) {
		return fmt.Errorf("%w: %w", syncer.ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", syncer.ErrNotApplied, err)
}

// IsTimeout reports whether an attempt failed only because it took too long.
func IsTimeout(err error) bool {
	var failure net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.As(err, &failure) && failure.Timeout()
}

// IsBusy reports whether a server refuses because of other work: it runs a long script, or moves a
// slot.
func IsBusy(err error) bool {
	return redis.HasErrorPrefix(err, "BUSY ") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// MarkLate wraps syncer.ErrLate around the error of an attempt if it was late.
func MarkLate(err error, late bool) error {
	if late {
		return lateError{err}
	}
	return err
}

// lateError is an error that also is syncer.ErrLate.
type lateError struct{ error }

func (e lateError) Unwrap() []error { return []error{syncer.ErrLate, e.error} }

// TextAt returns a string of a reply, or "" if there is none.
func TextAt(reply []any, i int) string {
	if i >= len(reply) {
		return ""
	}
	text, _ := reply[i].(string)
	return text
}

// NumberAt returns an integer of a reply, or 0 if there is none.
func NumberAt(reply []any, i int) uint64 {
	if i >= len(reply) {
		return 0
	}
	n, _ := reply[i].(int64)
	return uint64(n)
}
