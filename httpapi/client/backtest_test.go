package client_test

import (
	"errors"
	"log/slog"
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
