package request

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
)

// Kind is the meaning of an operation's error for a client.
type Kind uint8

// The kinds of failures. Nothing was counted, except where the outcome is unknown.
const (
	// Invalid: the request can't be executed as it is; it would fail again.
	Invalid Kind = iota
	// Overload: a limit of this node is reached.
	Overload
	// Unavailable: the node can't give a correct answer now.
	Unavailable
	// Unknown: a write may or may not have happened.
	Unknown
	// Internal: a mistake in this program. The error is for the log, not for the client.
	Internal
	// Forbidden: the client's token does not grant the request, or the id of a hold is forged.
	Forbidden
	// NotFound: no hold has the id.
	NotFound
	// Gone: the hold has ended.
	Gone
)

// Failure is an operation's error as reported to clients.
type Failure struct {
	Kind Kind
	// Field is the path of the offending field, empty if the failure is not about one.
	Field string
	// Detail is a sentence for people.
	Detail string
	// After is an estimate of how long the cause may last; 0 if there is none.
	After time.Duration
}

// Error returns the sentence for people.
func (f *Failure) Error() string { return f.Detail }

// FieldFailure returns the failure of a field whose value is well-formed but not acceptable.
func FieldFailure(field, detail string) *Failure {
	return &Failure{Kind: Invalid, Field: field, Detail: detail}
}

// Clip shortens a client's text so that it fits in a message.
func Clip(b []byte) string {
	const most = 64
	end := len(b)
	if end > most {
		for end = most; end > most-utf8.UTFMax && !utf8.RuneStart(b[end]); end-- {
		}
	}
	text := strings.ToValidUTF8(string(b[:end]), "?")
	if end < len(b) {
		text += "..."
	}
	return text
}

// RulesUnknownFailure is the failure of a request that names rules before this node has learned
// any.
func RulesUnknownFailure() *Failure {
	return &Failure{Kind: Unavailable,
		Detail: "this node has not been able to read the rules from Redis yet"}
}

// OnlyDistinctDetail explains why a rule can't judge events.
func OnlyDistinctDetail(rule string) string {
	return "rule " + rule + " has only distinct limits, which judge values: name it in " +
		"/v1/distinct or TT.DISTINCT, or give it limits"
}

// OnlyEventsDetail explains why a rule can't judge values.
func OnlyEventsDetail(rule string) string {
	return "rule " + rule + " has no distinct limits: name it in /v1/acquire or TT.ACQUIRE, or " +
		"give it some, such as distinct: 5/24h"
}

// FailureOf converts an operation's error. A write that ran out of time has an unknown outcome.
func FailureOf(err error, write bool) Failure {
	var invalid *twotier.InvalidError
	switch {
	case errors.As(err, &invalid):
		return Failure{Kind: Invalid, Detail: invalid.Error()}
	case errors.Is(err, twotier.ErrUnknownOutcome):
		return Failure{Kind: Unknown, Detail: err.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if write {
			return Failure{Kind: Unknown,
				Detail: "not done in time; it may or may not happen yet"}
		}
		return Failure{Kind: Unavailable, Detail: "no answer in time"}
	case errors.Is(err, twotier.ErrOverload):
		return Failure{Kind: Overload, Detail: err.Error(), After: estimateOf(err)}
	case errors.Is(err, twotier.ErrUnavailable), errors.Is(err, twotier.ErrClosed),
		errors.Is(err, rpc.ErrUnreachable):
		return Failure{Kind: Unavailable, Detail: err.Error()}
	}
	return Failure{Kind: Internal,
		Detail: "an error of this server's own; its log says more"}
}

// FailureOfOp is FailureOf for an operation. Unless checksForm is set, it names the fields of the
// only check as if they were the operation's own.
func FailureOfOp(err error, op *twotier.Op, checksForm bool) Failure {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if !ok {
		return FailureOf(err, !op.Reads())
	}
	named := *invalid
	switch {
	case !checksForm:
		named.Check = -1
	case named.Limit >= 0 && named.Check < 0:
		named.Check = 0 // the error leaves out the only one
	}
	if op.Kind == twotier.Count && named.Field == "window" {
		named.Limit = -1 // a count asks for windows, not for limits
	}
	if op.Kind == twotier.Count && named.Field == "ts" {
		named.Field = "at"
	}
	return Failure{Kind: Invalid, Detail: named.Error()}
}

// FailureOfQuery is FailureOf for a query about one key and one window.
func FailureOfQuery(err error) Failure {
	return FailureOfOp(err, &twotier.Op{Kind: twotier.Count}, false)
}

// mostRetry caps the wait that a client is asked for.
const mostRetry = time.Minute

// estimateOf returns how long the cause of an error may last, or 0 if that is unknown.
func estimateOf(err error) time.Duration {
	if later, ok := errors.AsType[*twotier.RetryError](err); ok {
		return max(time.Millisecond, min(later.After, mostRetry))
	}
	return 0
}
