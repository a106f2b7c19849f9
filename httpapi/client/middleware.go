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

// Outage says what a [Gate] does with a request for which there is no decision. There is no
// default.
type Outage int

// The choices.
const (
	// FailOpen lets requests pass: the service stays up, without limits.
	FailOpen Outage = iota + 1
	// FailClosed refuses requests with 503: no limit is exceeded, but the service is down.
	FailClosed
)

// GateOptions configure a [Gate].
type GateOptions struct {
	// Client makes the decisions. Required.
	Client *Client
	// Namespace and Limits are as in [AcquireRequest]. At least one limit is required.
	Namespace string
	Limits    []Limit
	// Outage is what happens to requests while no node answers in time and honestly: [FailOpen] or
	// [FailClosed]. Required.
	Outage Outage
	// Wait bounds how long a request waits for the decision. Default: 250 ms.
	Wait time.Duration
	// OnError is called with a key, as it was sent, and the reason why there is no decision about
	// it. While the service can't be reached, it is called often and concurrently. Default: none.
	OnError func(key string, err error)
}

// withDefaults returns o with its defaults filled in, or says why it can't be used.
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

// Gate limits the requests to your service by calling [Client.Acquire]. Make one with [NewGate] and
// share it.
//
// A request passes if the limits of its key allow it. Nothing that the sender controls makes it
// pass otherwise: a key that a server would refuse is sent as its [SafeKey], and a request whose
// sender leaves before the decision is not served. Otherwise the answer is
//
//   - 429 with Retry-After if a limit refuses it, or if the service is overloaded ([ErrOverloaded],
//     for example because memory is full);
//   - 500 if the service refuses what the gate asks ([ErrInvalid], for example because a window is
//     too long): no request passes until the gate's options are right;
//   - as [GateOptions].Outage says if there is no answer, or none within [GateOptions].Wait. Some
//     of these requests may have been counted.
type Gate struct{ opt GateOptions }

// NewGate returns a gate, or an error if a required option is missing, including the choice of
// Outage.
func NewGate(o GateOptions) (*Gate, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Gate{o}, nil
}

// Handler passes requests to next if the limits allow it. key returns the key to count a request
// under, and false if the request is not limited at all. An empty key is a key like any other:
// requests that lack what should tell them apart share one limit.
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

// verdict is the status for a request, and the number of seconds after which to retry; 0 means
// never.
type verdict struct {
	status int
	after  int64
}

var (
	passed      = verdict{status: http.StatusOK}
	unavailable = verdict{http.StatusServiceUnavailable, 1}
)

// decide asks for a decision about one request.
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
	return verdict{http.StatusTooManyRequests, seconds(a.RetryAfter)}
}

// seconds rounds up to whole seconds, at least one, for Retry-After.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// undecided returns the verdict on a request for which err came instead of a decision.
func (g *Gate) undecided(ctx context.Context, err error) verdict {
	switch {
	case errors.Is(err, ErrInvalid):
		return verdict{status: http.StatusInternalServerError}
	case errors.Is(err, ErrOverloaded):
		return verdict{http.StatusTooManyRequests, seconds(RetryAfter(err))}
	case ctx.Err() != nil:
		// The sender has left. If the request were served anyway, leaving would be a way around the
		// limit.
		return unavailable
	case g.opt.Outage == FailClosed:
		return unavailable
	}
	return passed
}
