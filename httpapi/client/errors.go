package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Errors of calls; test for them with errors.Is. But for [ErrUnknownOutcome], a call that returned
// an error has counted nothing.
var (
	// ErrUnknownOutcome: what was to be counted may or may not have been.
	ErrUnknownOutcome = errors.New("it may or may not have been counted")
	// ErrOverloaded: a node, or this client's queue for it, is full. Trying again at once makes it
	// worse.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnavailable: no node could be reached, or none that was can answer honestly.
	ErrUnavailable = errors.New("no node can answer")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("client is closed")
	// ErrInvalid: the request can't be sent or is refused; the same one would fail again.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthorized: the nodes don't know Options.Token, or it does not grant this. It is an
	// ErrInvalid, too.
	ErrUnauthorized = errors.New("not granted")
)

// errNotDone: a node has certainly not carried out a request. Another may be asked.
var errNotDone = errors.New("not carried out")

// errTimeout: Options.Timeout has passed. It is a timeout for errors.Is, as that of a context is.
var errTimeout = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

// Problem is an error that a node answered with (RFC 9457). It is one of the errors above for
// errors.Is, by its status.
type Problem struct {
	// Type is "urn:twotier:problem:" and a code, see Code.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail names the field that is wrong and what would be right.
	Detail string `json:"detail"`
	// Outcome is "unknown" if a write may or may not have happened.
	Outcome string `json:"outcome"`
}

// Code is the short name of the problem: "refused", "overload", "unavailable" and so on.
func (p *Problem) Code() string { return p.Type[strings.LastIndexByte(p.Type, ':')+1:] }

// Error is the detail, or the title if there is none.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// Is reports whether the problem is of that sort.
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrUnknownOutcome:
		return p.Outcome == "unknown" || p.Status == 500
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

// readProblem reads a problem that has the given status unless it says otherwise.
func readProblem(status int, body []byte) *Problem {
	p := &Problem{Status: status}
	if err := json.Unmarshal(body, p); err != nil || p.Title == "" && p.Detail == "" {
		*p = Problem{Status: status,
			Title: fmt.Sprintf("status %d without a problem; is that a twotier server?", status)}
	}
	return p
}

// unknown is the error of a call whose outcome is open: of a write nobody knows what it did, a read
// did nothing.
func unknown(write bool, why error) error {
	if write {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, why)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, why)
}
