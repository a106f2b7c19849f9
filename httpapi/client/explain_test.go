package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// TestExplain asks any of three nodes about a refusal and its key, and finds the id in the header
// of a gate.
func TestExplain(t *testing.T) {
	c := newBed(t, 3).client()
	check := client.Check{Key: "ann", N: 3, Limits: []client.Limit{{Window: time.Minute, Max: 2}}}
	a, err := c.Acquire(t.Context(), client.AcquireRequest{Check: check})
	must.Succeed(t, err)
	if a.Allowed || a.Refusal == "" {
		t.Fatalf("%+v", a)
	}
	for range 3 {
		for _, q := range []client.ExplainRequest{{ID: a.Refusal}, {Key: "ann"}} {
			text, err := c.Explain(t.Context(), q)
			must.Succeed(t, err)
			var e struct {
				Key      string
				Refusals []struct{ ID, Window string }
			}
			must.Succeed(t, json.Unmarshal(text, &e))
			if e.Key != "ann" || len(e.Refusals) != 1 || e.Refusals[0].ID != a.Refusal ||
				e.Refusals[0].Window != "1m" {
				t.Errorf("%+v: %s", q, text)
			}
		}
	}
	_, err = c.Explain(t.Context(), client.ExplainRequest{ID: "nobody.1"})
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.Status != http.StatusNotFound {
		t.Errorf("an unknown id: %v", err)
	}
	gate := gate(t, c, asGiven)
	w := httptest.NewRecorder()
	gate.HandlerOf(func(*http.Request) []client.Check { return []client.Check{check} },
		http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if id := w.Header().Get("Twotier-Refusal"); w.Code != 429 || id != a.Refusal {
		t.Errorf("%d, refusal %q, want %q", w.Code, id, a.Refusal)
	}
}
