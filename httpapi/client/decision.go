package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"twotier.dev/twotier/internal/ratefield"
)

// Decision is the outcome of one request at a [Gate].
type Decision struct {
	// Status is the HTTP status: 200 if the request passes, or else 429, 500 or 503, see [Gate].
	Status int
	// RetryAfter is how long to wait before the next attempt, 0 if the request passes or waiting
	// does not help.
	RetryAfter time.Duration
	// Policy and State are the values of RateLimit-Policy and RateLimit, see [Gate]. They are empty
	// if the request is not limited, or if there was no answer.
	Policy, State string
	// Refusal is the id of the refusal, for [Client.Explain]; empty if there was no decision, or it
	// passes.
	Refusal string
}

var (
	passed      = Decision{Status: http.StatusOK}
	unavailable = Decision{Status: http.StatusServiceUnavailable, RetryAfter: leastRetry}
	late        = Decision{Status: http.StatusTooManyRequests, RetryAfter: leastRetry}
)

// Passes reports whether the request passes.
func (d *Decision) Passes() bool { return d.Status == http.StatusOK }

// SetHeaders calls set for each header of the answer: RateLimit-Policy and RateLimit if there was a
// decision, Twotier-Refusal if it is a refusal, Retry-After in whole seconds if waiting helps.
func (d *Decision) SetHeaders(set func(name, value string)) {
	if d.Policy != "" {
		set("RateLimit-Policy", d.Policy)
		set("RateLimit", d.State)
	}
	if d.Refusal != "" {
		set("Twotier-Refusal", d.Refusal)
	}
	if d.RetryAfter > 0 {
		set("Retry-After", strconv.FormatInt(seconds(d.RetryAfter), 10))
	}
}

// ProblemType is the Content-Type of [Decision.Body].
const ProblemType = "application/problem+json"

// Body returns the body of the answer to a request that does not pass, as JSON of RFC 9457: title
// and status, detail, id if it is a refusal, and retry_after_ms if waiting helps.
func (d *Decision) Body() []byte {
	body, _ := json.Marshal(struct { // nothing in it can fail
		Title        string `json:"title"`
		Status       int    `json:"status"`
		Detail       string `json:"detail"`
		ID           string `json:"id,omitempty"`
		RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	}{http.StatusText(d.Status), d.Status, detailOf(d.Status), d.Refusal,
		milliseconds(d.RetryAfter)})
	return body
}

// detailOf returns the detail of a problem by its status.
func detailOf(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return "too many requests for a limit, or for the moment"
	case http.StatusServiceUnavailable:
		return "no decision about the limits of this request"
	}
	return "the limits of this request can't be checked"
}

// Decide decides about one request, which is counted if it passes. A gate's handlers call it; call
// it directly for other kinds of servers. A request without checks passes. ctx is the context of
// the request: if it ends first, the request does not pass.
func (g *Gate) Decide(ctx context.Context, checks []Check) Decision {
	if len(checks) == 0 {
		return passed
	}
	d := g.decide(ctx, checks)
	if g.opt.DryRun {
		d.Status, d.RetryAfter = http.StatusOK, 0
	}
	return d
}

func (g *Gate) decide(ctx context.Context, checks []Check) Decision {
	asked := withGateDefaults(checks, &g.opt)
	asking, cancel := context.WithTimeout(ctx, g.opt.Wait)
	defer cancel()
	a, err := g.opt.Client.Acquire(asking, AcquireRequest{Checks: asked})
	if err != nil {
		g.opt.OnError(asked[0].Key, err)
		return g.decideOnError(ctx, err)
	}
	d := passed
	d.Policy, d.State = rateLimit(&a)
	d.Refusal = a.Refusal
	if !a.Allowed {
		d.Status = http.StatusTooManyRequests
	}
	if !a.Allowed && a.RetryAfter >= 0 {
		// Waiting helps even if the next millisecond brings room.
		d.RetryAfter = max(time.Millisecond, a.RetryAfter)
	}
	return d
}

// rateLimit returns the values of RateLimit-Policy and RateLimit.
func rateLimit(a *AcquireAnswer) (policy, state string) {
	var fields ratefield.Fields
	for i := range a.Checks {
		c := &a.Checks[i]
		for k, l := range c.Limits {
			if l.Shadow || l.Concurrent {
				continue
			}
			name := policyName(c.Limits, k)
			if len(a.Checks) > 1 {
				name = fmt.Sprintf("checks[%d].%s", i, name)
			}
			shows := ratefield.Limit{Name: name, Max: l.Max, Window: l.Window.Milliseconds(),
				Remaining: l.Remaining}
			switch {
			case l.Period != "":
				shows.Window = l.End.Sub(l.Start).Milliseconds()
				shows.Wait = milliseconds(time.Until(l.End))
			case l.Refused:
				shows.Wait = milliseconds(c.RetryAfter)
			}
			fields.Add(&shows)
		}
	}
	return fields.Policy(), fields.State()
}

// policyName returns the name in headers of limit k of a check.
func policyName(limits []LimitState, k int) string {
	name := limits[k].Rule
	if name == "" {
		return fmt.Sprintf("limits[%d]", k)
	}
	for i := range limits {
		if i != k && limits[i].Rule == name {
			if limits[k].Period != "" {
				return name + "/" + limits[k].Period
			}
			return string(appendWindow([]byte(name+"/"), limits[k].Window))
		}
	}
	return name
}

// seconds rounds up to whole seconds, at least one, for Retry-After.
func seconds(d time.Duration) int64 { return max(1, ratefield.Seconds(milliseconds(d))) }

// milliseconds rounds up to whole milliseconds.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// decideOnError returns the decision on a request that got err instead of one.
func (g *Gate) decideOnError(ctx context.Context, err error) Decision {
	switch {
	case errors.Is(err, ErrInvalid):
		return Decision{Status: http.StatusInternalServerError}
	case errors.Is(err, ErrOverloaded):
		return Decision{Status: http.StatusTooManyRequests, RetryAfter: RetryAfter(err)}
	case ctx.Err() != nil:
		// The sender has left. Serving the request would make leaving a way around the limit.
		return unavailable
	case isAnswer(err):
		return unavailable
	case g.opt.Client.reachesAny():
		// Serving the request would let a client switch the limits off by overloading the service.
		return late
	case g.opt.Outage == FailClosed:
		return unavailable
	}
	return passed
}

// isAnswer reports whether an error is the answer of a twotier server.
func isAnswer(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.isFromTwotier()
}

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
