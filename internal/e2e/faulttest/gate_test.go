package faulttest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/proctest"
)

// TestAttackKeysThatNoServerTakes sends twenty requests under each invalid key through the client's
// gate, which has a limit of three and fails open.
func TestAttackKeysThatNoServerTakes(t *testing.T) {
	t.Parallel()
	// The gate lets pass what no server answers, so the node takes its time.
	node := build.program.Serve(t, proctest.Options{}, "--request-timeout",
		proctest.Patience.String())
	c, err := client.New(client.Options{Addresses: []string{node.Listen}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	gate, err := client.NewGate(client.GateOptions{
		Client: c, Limits: []client.Limit{{Window: time.Hour, Max: 3}}, Outage: client.FailOpen,
		Wait: proctest.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
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
