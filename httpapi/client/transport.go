package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrNoTurn is returned for a request that was not sent, because its limits leave no room for it
// within the time that it may wait.
var ErrNoTurn = errors.New("no turn within the time to wait")

// TransportOptions configure a [Transport].
type TransportOptions struct {
	// GateOptions are as for a [Gate]. With FailClosed, a request without a decision fails with the
	// reason.
	GateOptions
	// Checks returns the checks of a request; none if it is not limited. Required.
	Checks func(*http.Request) []Check
	// MaxWait bounds how long a request waits for its turn; its context may end sooner. Default:
	// 1 m.
	MaxWait time.Duration
	// Base sends the requests. Default: [http.DefaultTransport].
	Base http.RoundTripper
}

// Transport is an [http.RoundTripper] for clients of other people's APIs: a request waits until its
// limits, which all users of the cluster share, leave room for it. It is safe for concurrent use.
// Requests don't wait in a queue: once there is room, the first one to try again is next.
type Transport struct {
	opt  TransportOptions
	gate *Gate
}

// NewTransport returns a transport, or an error if a required option is missing.
func NewTransport(o TransportOptions) (*Transport, error) {
	g, err := NewGate(o.GateOptions)
	switch {
	case err != nil:
		return nil, err
	case o.Checks == nil:
		return nil, errors.New("client: TransportOptions.Checks is missing")
	case o.MaxWait < 0:
		return nil, fmt.Errorf("client: TransportOptions.MaxWait is %v, want more than 0",
			o.MaxWait)
	}
	if o.MaxWait == 0 {
		o.MaxWait = time.Minute
	}
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	return &Transport{opt: o, gate: g}, nil
}

// RoundTrip sends a request when it is its turn. If that can't be in time, it returns ErrNoTurn at
// once; if the request's context ends, its error. The request then was not sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if checks := t.opt.Checks(r); len(checks) > 0 {
		if err := t.await(r.Context(), withGateDefaults(checks, &t.gate.opt)); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
	return t.opt.Base.RoundTrip(r)
}

// await returns nil once all checks hold and are counted.
func (t *Transport) await(ctx context.Context, checks []Check) error {
	by := time.Now().Add(t.opt.MaxWait)
	if d, ok := ctx.Deadline(); ok && d.Before(by) {
		by = d
	}
	for {
		after, err := t.tryOnce(ctx, checks)
		switch {
		case err != nil || after == 0:
			return err
		case after < 0 || time.Now().Add(after).After(by):
			return ErrNoTurn
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(after):
		}
	}
}

// tryOnce tries once. It returns how long to wait before trying again: 0 if it is the request's
// turn, less than 0 if it never will be.
func (t *Transport) tryOnce(ctx context.Context, checks []Check) (after time.Duration, err error) {
	o := &t.gate.opt
	asking, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	a, err := o.Client.Acquire(asking, AcquireRequest{Checks: checks})
	switch {
	case err == nil && a.Allowed:
		return 0, nil
	case err == nil && a.RetryAfter < 0:
		return -1, nil
	case err == nil:
		return max(time.Millisecond, a.RetryAfter), nil
	}
	o.OnError(checks[0].Key, err)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, ErrOverloaded):
		return max(time.Millisecond, RetryAfter(err)), nil
	case errors.Is(err, ErrInvalid):
		return 0, err
	case isAnswer(err) || o.Client.reachesAny():
		return leastRetry, nil
	case o.Outage == FailClosed:
		return 0, err
	}
	return 0, nil
}
