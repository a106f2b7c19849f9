package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Outage says what a [Gate] does with a request while nobody can decide about it. There is no
// default.
type Outage int

// The choices.
const (
	// FailOpen lets requests pass: the service stays up, and nothing limits it meanwhile.
	FailOpen Outage = iota + 1
	// FailClosed refuses them with 503: nothing gets past a limit, and nothing gets through.
	FailClosed
)

// GateOptions configure a [Gate].
type GateOptions struct {
	// Client asks. Required.
	Client *Client
	// Namespace and Limits are as in [AcquireRequest]. At least one limit is required.
	Namespace string
	Limits    []Limit
	// Outage is what happens to requests while no node can answer, in time and honestly: [FailOpen]
	// or [FailClosed]. Required.
	Outage Outage
	// Wait bounds how long a request waits for the decision. Default: 250 ms.
	Wait time.Duration
	// OnError is told why there is no decision about a key, as the key was sent; often at the same
	// time, while the service can't be reached. Default: nobody is.
	OnError func(key string, err error)
}

// withDefaults returns o with its defaults filled in, or why it can't be used.
func (o GateOptions) withDefaults() (GateOptions, error) {
	switch {
	case o.Client == nil:
		return o, errors.New("client: GateOptions.Client is missing")
	case len(o.Limits) == 0:
		return o, errors.New("client: GateOptions.Limits is empty, want at least one")
	case o.Outage != FailOpen && o.Outage != FailClosed:
		return o,
			errors.New("client: GateOptions.Outage is not chosen, want FailOpen or FailClosed")
	case o.Wait < 0:
		return o, fmt.Errorf("client: GateOptions.Wait is %v, want more than 0", o.Wait)
	}
	if o.Wait == 0 {
		o.Wait = 250 * time.Millisecond
	}
	if o.OnError == nil {
		o.OnError = func(string, error) {}
	}
	return o, nil
}

// Gate decides about requests to a service of yours by [Client.Acquire]. Make one with [NewGate]
// and share it.
//
// A request passes if the limits of its key allow it. Nothing that its sender chooses makes it pass
// otherwise: a key that a server would refuse is sent as its [SafeKey], and one that leaves before
// the decision is not served. A request is answered
//
//   - 429 with Retry-After if a limit refuses it, or if the service is overloaded ([ErrOverloaded],
//     such as memory that is full);
//   - 500 if the service refuses what the gate asks ([ErrInvalid], such as a window that is too
//     long): no request passes until its options are right;
//   - as [GateOptions].Outage says if there is no answer, or none within [GateOptions].Wait. Of the
//     latter some may have been counted.
type Gate struct{ opt GateOptions }

// NewGate returns a gate, or an error if something required is missing, the choice of Outage
// included.
func NewGate(o GateOptions) (*Gate, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Gate{o}, nil
}

// Handler lets requests pass to next if the limits allow it. key returns what a request is counted
// under, and false if it is not to be limited at all. An empty key is one like any other: requests
// that lack what they should be told apart by share a limit.
func (g *Gate) Handler(key func(*http.Request) (string, bool), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := passed
		if k, limited := key(r); limited {
			v = g.decide(r.Context(), k)
		}
		if v == passed {
			next.ServeHTTP(w, r)
			return
		}
		if v.after > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(v.after, 10))
		}
		http.Error(w, http.StatusText(v.status), v.status)
	})
}

// FastHandler is Handler for fasthttp.
func (g *Gate) FastHandler(
	key func(*fasthttp.RequestCtx) (string, bool), next fasthttp.RequestHandler,
) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		v := passed
		if k, limited := key(ctx); limited {
			v = g.decide(context.Background(), k)
		}
		if v == passed {
			next(ctx)
			return
		}
		ctx.Error(fasthttp.StatusMessage(v.status), v.status)
		if v.after > 0 {
			ctx.Response.Header.Set("Retry-After", strconv.FormatInt(v.after, 10))
		}
	}
}

// verdict is the status for a request, and after how many seconds to try again; 0 means never.
type verdict struct {
	status int
	after  int64
}

var (
	passed      = verdict{status: http.StatusOK}
	overloaded  = verdict{http.StatusTooManyRequests, 1}
	unavailable = verdict{http.StatusServiceUnavailable, 1}
)

// decide asks about one request.
func (g *Gate) decide(ctx context.Context, key string) verdict {
	key = SafeKey(key)
	asking, cancel := context.WithTimeout(ctx, g.opt.Wait)
	defer cancel()
	check := Check{Namespace: g.opt.Namespace, Key: key, Limits: g.opt.Limits}
	a, err := g.opt.Client.Acquire(asking, AcquireRequest{Check: check})
	switch {
	case err != nil:
		g.opt.OnError(key, err)
		return g.undecided(ctx, err)
	case a.Allowed:
		return passed
	case a.RetryAfter < 0:
		return verdict{status: http.StatusTooManyRequests}
	}
	return verdict{http.StatusTooManyRequests,
		max(1, int64((a.RetryAfter+time.Second-1)/time.Second))}
}

// undecided returns what becomes of a request about which err came back in place of a decision.
func (g *Gate) undecided(ctx context.Context, err error) verdict {
	switch {
	case errors.Is(err, ErrInvalid):
		return verdict{status: http.StatusInternalServerError}
	case errors.Is(err, ErrOverloaded):
		return overloaded
	case ctx.Err() != nil:
		// Its sender has left; served all the same, it would have got past the limit by leaving.
		return unavailable
	case g.opt.Outage == FailClosed:
		return unavailable
	}
	return passed
}
