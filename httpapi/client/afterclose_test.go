package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// TestCallsAfterClose: every call of a closed client is refused, and counts nothing. A new client
// of the same process is not affected.
func TestCallsAfterClose(t *testing.T) {
	b := newBed(t, 1)
	c, err := client.New(client.Options{Addresses: []string{b.nodes[0].address}})
	must.Succeed(t, err)
	add := client.AddRequest{Key: "after close"}
	_, err = c.Add(t.Context(), add)
	must.Succeed(t, err)
	must.Succeed(t, c.Close(t.Context()))
	minute := []time.Duration{time.Minute}
	limits := []client.Limit{{Window: time.Minute, Max: 9}}
	for name, call := range map[string]func(context.Context) error{
		"add": func(ctx context.Context) error { _, err := c.Add(ctx, add); return err },
		"count": func(ctx context.Context) error {
			_, err := c.Count(ctx, client.CountRequest{Key: add.Key, Windows: minute})
			return err
		},
		"acquire": func(ctx context.Context) error {
			_, err := c.Acquire(ctx, client.AcquireRequest{
				Check: client.Check{Key: add.Key, Limits: limits}})
			return err
		},
		"is action allowed": func(ctx context.Context) error {
			_, err := c.IsActionAllowed(ctx, "ann", "reply", time.Minute, 9)
			return err
		},
	} {
		if err := call(t.Context()); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for outage, want := range map[client.Outage]int{client.FailOpen: 200, client.FailClosed: 503} {
		g := gate(t, c, func(o *client.GateOptions) { o.Outage = outage })
		if resp := visit(t.Context(), g, new(served), add.Key); resp.StatusCode != want {
			t.Errorf("a gate whose client is closed: %d, want %d", resp.StatusCode, want)
		}
	}
	if n := counted(t, b.client(), add.Key); n != 1 {
		t.Errorf("counted %d, want 1", n)
	}
}

// TestEndedContextsCountNothing makes calls whose context has ended before.
func TestEndedContextsCountNothing(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		_, err := c.Add(ended, client.AddRequest{Key: "ended"})
		if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Fatalf("an add: %v", err)
		}
	}
	_, err := c.Add(t.Context(), client.AddRequest{Key: "ended"})
	must.Succeed(t, err)
	if n := counted(t, c, "ended"); n != 1 {
		t.Errorf("counted %d, want 1", n)
	}
}
