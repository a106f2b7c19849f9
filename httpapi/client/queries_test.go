package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// noDocument returns a rule book that has no document.
func noDocument(t testing.TB) *rulebook.Keeper {
	k := rulebook.New(rulebook.Options{Store: new(rulebook.Memory), Book: new(rules.Book),
		Check: func(*rules.Document) error { return nil }, Timeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler)})
	k.Open(t.Context())
	t.Cleanup(k.Close)
	return k
}

// TestBacktest submits proposed rules and rules in force to three nodes, each with some of the
// keys.
func TestBacktest(t *testing.T) {
	c := newBed(t, 3).client()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		_, err := c.Add(t.Context(), client.AddRequest{Key: key, N: 4})
		must.Succeed(t, err)
	}
	a, err := c.Backtest(t.Context(), client.BacktestRequest{Top: 5, Document: "rules:\n" +
		"- {name: wide, limits: [4/1d, 9/90s]}\n- {name: tight, state: shadow, limits: [1/1d]}\n"})
	must.Succeed(t, err)
	if a.LookedAt != 5 || a.Unread != 0 || a.RulesVersion != 0 || len(a.Rules) != 2 {
		t.Fatalf("%+v", a)
	}
	tight, wide := a.Rules[0], a.Rules[1]
	if tight.State != "shadow" || tight.Refused != (client.Bounds{Min: 15, Max: 15}) ||
		len(tight.Keys) != 5 || tight.Namespace != "default" {
		t.Errorf("tight: %+v", tight)
	}
	if wide.Refusing != 5 || wide.Events != 20 || wide.Refused != (client.Bounds{}) {
		t.Errorf("wide: %+v", wide)
	}
	want := client.BacktestLimit{Window: 24 * time.Hour, Max: 4, Refuses: true,
		Now: client.Bounds{Min: 4, Max: 4}, Peak: client.Bounds{Min: 4, Max: 4}}
	if k := wide.Keys[0]; k.Limits[0] != want || k.Limits[1].Window != 90*time.Second {
		t.Errorf("a key: %+v", k)
	}
	a, err = c.Backtest(t.Context(), client.BacktestRequest{Rules: []string{"login", "pair"}})
	must.Succeed(t, err)
	if len(a.Rules) != 2 || a.Rules[0].LookedAt != 6 || a.Rules[1].LookedAt != 0 {
		t.Errorf("%+v", a)
	}
	for wrong, r := range map[string]client.BacktestRequest{
		"either Document or Rules": {}, "rules[0]: there is no rule": {Rules: []string{"nobody"}},
		"rules:1:28: limit": {Document: "rules: [{name: a, limits: [1]}]"},
	} {
		if _, err := c.Backtest(t.Context(), r); !errors.Is(err, client.ErrInvalid) ||
			!strings.Contains(err.Error(), wrong) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

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

// TestCalendarWindows asks one node. The day may end at any moment, but rarely does.
func TestCalendarWindows(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	daily := []client.Limit{{Period: "day@Asia/Shanghai", Max: 3}, {Window: time.Minute, Max: 9}}
	began := time.Now()
	a, err := c.Add(t.Context(), client.AddRequest{Key: "k", N: 2, Limits: daily})
	if err != nil || a.Over || a.Counts[0].Period != "day@Asia/Shanghai" ||
		a.Counts[0].Window != 0 || a.Counts[1].Period != "" || a.Counts[1].Window != time.Minute {
		t.Errorf("add: %+v, %v", a, err)
	}
	n, err := c.Count(t.Context(), client.CountRequest{Key: "k",
		Windows: []time.Duration{time.Minute}, Periods: []string{"day", "hour.0"}})
	if err == nil {
		t.Errorf("hour.0: %+v", n)
	}
	n, err = c.Count(t.Context(), client.CountRequest{Key: "k",
		Windows: []time.Duration{time.Minute}, Periods: []string{"day"}})
	if err != nil || len(n.Counts) != 2 || n.Counts[1].Period != "day" || n.Counts[1].Count != 2 ||
		n.Counts[1].End.Sub(n.Counts[1].Start) != 24*time.Hour {
		t.Errorf("count: %+v, %v", n, err)
	}
	for i := range 2 {
		q, err := c.Acquire(t.Context(), client.AcquireRequest{Check: client.Check{Key: "k",
			Limits: daily}})
		l := q.Limits[0]
		if err != nil || q.Allowed != (i == 0) || l.Period != "day@Asia/Shanghai" ||
			l.Count != 3 || l.Start.After(began) || l.End.Before(began) {
			t.Errorf("acquire %d: %+v, %v", i, q, err)
		}
		if wait := time.Until(l.End); i == 1 && (wait-q.RetryAfter).Abs() > time.Minute {
			t.Errorf("retry after %v, the day ends in %v", q.RetryAfter, wait)
		}
	}
	g := gate(t, c, func(o *client.GateOptions) {
		o.Limits = []client.Limit{{Period: "hour", Max: 1}}
	})
	d := g.Decide(t.Context(), []client.Check{{Key: "gate"}})
	if d.Policy != `"limits[0]";q=1;w=3600` || !d.Passes() {
		t.Errorf("gate: %+v", d)
	}
	for _, l := range []client.Limit{{Period: "day", Window: time.Minute, Max: 1},
		{Period: "\xff", Max: 1}, {Period: "century", Max: 1}} {
		_, err := c.Acquire(context.Background(), client.AcquireRequest{Check: client.Check{
			Key: "k", Limits: []client.Limit{l}}})
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
