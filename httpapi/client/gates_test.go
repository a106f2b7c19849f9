package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// sharingOptions are options of middleware in the table that all languages share.
type sharingOptions struct {
	Name, NS string
	Limits   map[string]int64
	Rules    []string
}

// open makes a gate with these options.
func (o *sharingOptions) open(t *testing.T, c *client.Client) {
	t.Helper()
	g := client.GateOptions{Client: c, Outage: client.FailOpen, Name: o.Name, Namespace: o.NS,
		Rules: o.Rules}
	for text, most := range o.Limits {
		window, err := time.ParseDuration(text)
		must.Succeed(t, err)
		g.Limits = append(g.Limits, client.Limit{Window: window, Max: most})
	}
	_, err := client.NewGate(g)
	must.Succeed(t, err)
}

// TestGatesThatShareCountsWarn makes pairs of gates, of one client and of two.
func TestGatesThatShareCountsWarn(t *testing.T) {
	text, err := os.ReadFile("../../clients/testdata/sharing.json")
	must.Succeed(t, err)
	var rows []struct {
		First, Second sharingOptions
		Warns         bool
	}
	must.Succeed(t, json.Unmarshal(text, &rows))
	for i, row := range rows {
		for clients := range 2 {
			var log bytes.Buffer
			open := func() *client.Client {
				c, err := client.New(client.Options{
					Addresses: []string{fmt.Sprintf("127.0.0.1:%d", 1+2*i+clients)},
					Logger:    slog.New(slog.NewTextHandler(&log, nil))})
				must.Succeed(t, err)
				t.Cleanup(func() { must.Succeed(t, c.Close(context.Background())) })
				return c
			}
			first := open()
			second := first
			if clients == 1 {
				second = open()
			}
			row.First.open(t, first)
			row.Second.open(t, second)
			if got := strings.Contains(log.String(), "share their counts"); got != row.Warns {
				t.Errorf("row %d: %+v and %+v: warned %v", i, row.First, row.Second, got)
			}
		}
	}
}

// TestNameIsPartOfEveryKey counts keys of a gate with a name.
func TestNameIsPartOfEveryKey(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	plain := gate(t, c, asGiven)
	named := gate(t, c, func(o *client.GateOptions) { o.Name = "login" })
	for _, key := range []string{"ann", "", strings.Repeat("k", 256), "sha256:"} {
		for name, g := range map[string]*client.Gate{"none": plain, "login": named} {
			var next served
			for range 5 {
				visit(t.Context(), g, &next, key)
			}
			if n := next.Load(); n != 3 {
				t.Errorf("%.20q, name %s: %d of 5 passed, want 3", key, name, n)
			}
		}
	}
	a, err := c.Count(t.Context(), client.CountRequest{Key: "login:ann",
		Windows: []time.Duration{time.Minute}})
	if err != nil || a.Counts[0].Max != 3 {
		t.Errorf("login:ann: %+v, %v", a, err)
	}
}
