package faulttest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// TestAttackKeysThatNoServerTakes sends twenty requests under each invalid key through the client's
// gate, which has a limit of three and fails open.
func TestAttackKeysThatNoServerTakes(t *testing.T) {
	t.Parallel()
	// The gate passes requests that no server answers in time, so the timeout is long.
	node := program.Serve(t, proctest.Options{}, "--request-timeout",
		proctest.Patience.String())
	c, err := client.New(client.Options{Addresses: []string{node.Listen},
		Timeout: proctest.Patience})
	must.Succeed(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	gate, err := client.NewGate(client.GateOptions{
		Client: c, Limits: []client.Limit{{Window: time.Hour, Max: 3}}, Outage: client.FailOpen,
		Wait: proctest.Patience,
	})
	must.Succeed(t, err)
	for _, key := range []string{"plain", "", strings.Repeat("k", 257), "\xff", "a\tb",
		client.SafeKey("\xff")} {
		passed := 0
		h := gate.Handler(func(r *http.Request) (string, bool) {
			return r.Header.Get("User"), true
		},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
		for range 20 {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header.Set("User", key)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		t.Logf("key %.8q: %d of 20 passed", key, passed)
		if passed != 3 {
			t.Errorf("key %.20q: %d of 20 passed, the limit is 3", key, passed)
		}
	}
}

// TestOverloadSwitchesNoLimitsOff makes a crowd of 1,500 ask a small node for more than it can
// decide, through a gate that fails open. Whatever the outcome of a request, it passes only by a
// decision.
func TestOverloadSwitchesNoLimitsOff(t *testing.T) {
	t.Parallel()
	node := program.Serve(t, proctest.Options{}, "--max-memory", "4MiB", "--partitions", "8")
	c, err := client.New(client.Options{Addresses: []string{node.Listen},
		Timeout: proctest.Patience, AttemptTimeout: 750 * time.Millisecond})
	must.Succeed(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	must.Succeed(t, c.Refresh(t.Context()))
	var limits []client.Limit
	for i := range 16 {
		window := time.Duration(i+1) * time.Minute
		limits = append(limits, client.Limit{Window: window, Max: 1 << 30})
	}
	var checks []client.Check
	for i := range 8 {
		checks = append(checks, client.Check{Key: fmt.Sprint("key-", i)})
	}
	gate, err := client.NewGate(client.GateOptions{Client: c, Limits: limits,
		Outage: client.FailOpen})
	must.Succeed(t, err)
	var decided, refused, undecided atomic.Int64
	var crowd sync.WaitGroup
	for range 1500 {
		crowd.Go(func() {
			for range 10 {
				switch d := gate.Decide(t.Context(), checks); {
				case !d.Passes():
					refused.Add(1)
				case d.Policy == "":
					undecided.Add(1)
				default:
					decided.Add(1)
				}
			}
		})
	}
	crowd.Wait()
	if n := undecided.Load(); n > 0 {
		t.Errorf("%d of 15,000 passed without a decision", n)
	}
	t.Logf("%d passed by a decision, %d were refused", decided.Load(), refused.Load())
}
