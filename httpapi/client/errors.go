package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of calls; test for them with errors.Is. A call that returned an error has counted nothing,
// unless the error is [ErrUnknownOutcome].
var (
	// ErrUnknownOutcome: the events may or may not have been counted.
	ErrUnknownOutcome = errors.New("it may or may not have been counted")
	// ErrOverloaded: a node, or this client's queue for it, is full. Retrying at once makes it
	// worse.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnavailable: no node could be reached, or no reachable node can answer honestly.
	ErrUnavailable = errors.New("no node can answer")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("client is closed")
	// ErrInvalid: the request can't be sent or was refused; the same request would fail again.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthorized: the nodes don't know Options.Token, or it does not grant this call. It is
	// also an ErrInvalid.
	ErrUnauthorized = errors.New("not granted")
)

// errNotDone: a node certainly did not execute a request. Another node may.
var errNotDone = errors.New("not carried out")

// errTimeout: Options.Timeout has passed. It wraps context.DeadlineExceeded.
var errTimeout = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

// Problem is an error that a node returned (RFC 9457). Depending on its status, errors.Is matches
// it with one of the errors above.
type Problem struct {
	// Type is "urn:twotier:problem:" followed by a code, see Code.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail names the wrong field and a right value.
	Detail string `json:"detail"`
	// Outcome is "unknown" if a write may or may not have happened.
	Outcome string `json:"outcome"`
	// RetryAfterMS is the node's estimate of how long the cause may last, in milliseconds, at most
	// a minute; 0 if it has none. See [RetryAfter].
	RetryAfterMS int64 `json:"retry_after_ms"`
}

// RetryAfter returns how long to wait before trying again a call that returned err: the node's
// estimate, or else a second if a node was overloaded or unavailable. It returns 0 if trying again
// can't help or may count twice.
func RetryAfter(err error) time.Duration {
	switch problem, ok := errors.AsType[*Problem](err); {
	case err == nil, errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrClosed),
		errors.Is(err, ErrInvalid):
		return 0
	case ok && problem.RetryAfterMS > 0:
		return min(millis(problem.RetryAfterMS), mostRetry)
	}
	return leastRetry
}

// Bounds of the result of RetryAfter.
const (
	leastRetry = time.Second
	mostRetry  = time.Minute
)

// Code returns the short name of the problem: "refused", "overload", "unavailable" and so on.
func (p *Problem) Code() string { return p.Type[strings.LastIndexByte(p.Type, ':')+1:] }

// isFromTwotier reports whether the problem comes from a twotier server, and not from a proxy in
// front of one.
func (p *Problem) isFromTwotier() bool { return strings.HasPrefix(p.Type, "urn:twotier:problem:") }

// Error returns the detail, or the title if there is none.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// Is reports whether the problem is of that kind.
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrUnknownOutcome:
		// A 502 or 504 is from a proxy, whose node may have counted.
		return p.Outcome == "unknown" || p.Status >= 500 && p.Status != 503
	case ErrOverloaded:
		return p.Status == 429
	case ErrUnavailable:
		return p.Status == 408 || p.Status == 503 && p.Outcome != "unknown"
	case ErrUnauthorized:
		return p.Status == 401 || p.Status == 403
	case ErrInvalid:
		return p.Status >= 400 && p.Status < 500 && p.Status != 429 && p.Status != 408
	}
	return false
}

// readProblem parses a problem. Its status is the given one unless it states another.
func readProblem(status int, body []byte) *Problem {
	p := &Problem{Status: status}
	if err := json.Unmarshal(body, p); err != nil || p.Title == "" && p.Detail == "" {
		*p = Problem{Status: status,
			Title: fmt.Sprintf("status %d without a problem; is that a twotier server?", status)}
	}
	return p
}

// unknownOutcomeError returns the error of a call without an answer: the outcome of a write is
// unknown, and a read did nothing.
func unknownOutcomeError(write bool, why error) error {
	if write {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, why)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, why)
}
