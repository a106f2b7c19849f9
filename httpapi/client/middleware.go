package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Gate decides about requests to a service of yours by [Client.Acquire]: one that a limit refuses is answered 429 with
// Retry-After.
type Gate struct {
	// Client asks. Required.
	Client *Client
	// Namespace and Limits are as in [AcquireRequest]. At least one limit is required.
	Namespace string
	Limits    []Limit
	// Wait bounds how long a request waits for the decision. Default: 250 ms.
	Wait time.Duration
	// FailClosed refuses requests with 503 while there is no decision. Default: they pass.
	FailClosed bool
	// OnError is told why there is no decision about a key; often at the same time, while the service can't be reached. Default: nobody is.
	OnError func(key string, err error)
}

// check panics if the gate can't work: it is built when a program starts.
func (g *Gate) check() {
	if g.Client == nil || len(g.Limits) == 0 {
		panic("client: a Gate needs a Client and Limits")
	}
}

// Handler lets requests pass to next if the limits allow it. The key of a request is what key returns; one without passes.
func (g *Gate) Handler(key func(*http.Request) string, next http.Handler) http.Handler {
	g.check()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, after := g.decide(r.Context(), key(r))
		if status == http.StatusOK {
			next.ServeHTTP(w, r)
			return
		}
		if after > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(after, 10))
		}
		http.Error(w, http.StatusText(status), status)
	})
}

// FastHandler is Handler for fasthttp.
func (g *Gate) FastHandler(key func(*fasthttp.RequestCtx) string, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	g.check()
	return func(ctx *fasthttp.RequestCtx) {
		status, after := g.decide(context.Background(), key(ctx))
		if status == fasthttp.StatusOK {
			next(ctx)
			return
		}
		ctx.Error(fasthttp.StatusMessage(status), status)
		if after > 0 {
			ctx.Response.Header.Set("Retry-After", strconv.FormatInt(after, 10))
		}
	}
}

// decide returns the status for a request and after how many seconds to try again; 0 means never.
func (g *Gate) decide(ctx context.Context, key string) (status int, after int64) {
	if key == "" {
		return http.StatusOK, 0
	}
	wait := g.Wait
	if wait <= 0 {
		wait = 250 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	a, err := g.Client.Acquire(ctx, AcquireRequest{Check: Check{Namespace: g.Namespace, Key: key, Limits: g.Limits}})
	switch {
	case err == nil && a.Allowed:
		return http.StatusOK, 0
	case err == nil && a.RetryAfter < 0:
		return http.StatusTooManyRequests, 0
	case err == nil:
		return http.StatusTooManyRequests, max(1, int64((a.RetryAfter+time.Second-1)/time.Second))
	}
	if g.OnError != nil {
		g.OnError(key, err)
	}
	if !g.FailClosed || errors.Is(err, context.Canceled) { // a caller that has left hears nothing anyway
		return http.StatusOK, 0
	}
	return http.StatusServiceUnavailable, 1
}
