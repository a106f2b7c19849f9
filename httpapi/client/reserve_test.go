package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// TestSettle reserves estimates and settles them later, through another node: the final counts are
// the actual costs.
func TestSettle(t *testing.T) {
	b := newBed(t, 3)
	c := b.client()
	limits := []client.Limit{{Window: time.Hour, Max: 1000}}
	request := client.AcquireRequest{Checks: []client.Check{
		{Key: "tokens of ann", N: 400, Limits: limits},
		{Key: "tokens of all", N: 400, Limits: limits},
	}}
	want := int64(0)
	for _, actual := range []int64{0, 1, 400, 399, 500} {
		r, a, err := c.Reserve(t.Context(), request)
		must.Succeed(t, err)
		if r == nil {
			if want+400 <= 1000 {
				t.Errorf("refused with %d counted: %+v", want, a)
			}
			continue
		}
		must.Succeed(t, r.Settle(t.Context(), actual))
		must.Succeed(t, r.Settle(t.Context(), 7)) // has no effect
		want += actual
		for _, key := range []string{"tokens of ann", "tokens of all"} {
			expect(t, c, key, want)
		}
	}
	if want != 800 {
		t.Errorf("%d settled", want)
	}
	_, _, err := c.Reserve(t.Context(), client.AcquireRequest{DryRun: true, Check: client.Check{
		Key: "k", Limits: limits}})
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a dry run: %v", err)
	}
}

// TestSettleAgain: checks that were certainly not settled may be settled later, and only once.
func TestSettleAgain(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	r, _, err := c.Reserve(t.Context(), client.AcquireRequest{Check: client.Check{Key: "k", N: 10,
		Limits: []client.Limit{{Window: time.Hour, Max: 10}}}})
	must.Succeed(t, err)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Settle(late, 3); err == nil {
		t.Fatal("settled without time")
	}
	if err := r.Settle(t.Context(), -1); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a negative cost: %v", err)
	}
	must.Succeed(t, r.Settle(t.Context(), 3))
	expect(t, c, "k", 3)
}

// TestSettleAtItsTime settles estimates of ten minutes ago: they are corrected in their old
// buckets, and the present stays unchanged.
func TestSettleAtItsTime(t *testing.T) {
	c := newBed(t, 1).client()
	then := time.Now().Add(-10 * time.Minute)
	for key, actual := range map[string]int64{"less": 150, "more": 500} {
		r, _, err := c.Reserve(t.Context(), client.AcquireRequest{At: then, Check: client.Check{
			Key: key, N: 400, Limits: []client.Limit{{Window: time.Hour, Max: 1000}}}})
		must.Succeed(t, err)
		must.Succeed(t, r.Settle(t.Context(), actual))
		for at, want := range map[time.Time]int64{then.Add(time.Second): actual, time.Now(): 0} {
			a, err := c.Count(t.Context(), client.CountRequest{Key: key, At: at,
				Windows: []time.Duration{time.Minute}})
			must.Succeed(t, err)
			if got := a.Counts[0].Max; got != want {
				t.Errorf("%s: %d in the minute before %v, want %d", key, got, at, want)
			}
		}
	}
}

// TestTransport sends more requests than the limits leave room for: each waits for its turn.
func TestTransport(t *testing.T) {
	var answered atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		answered.Add(1)
	}))
	defer api.Close()
	c := newBed(t, 1).client()
	transport := func(key string, change func(*client.TransportOptions)) *http.Client {
		o := client.TransportOptions{
			GateOptions: client.GateOptions{Client: c, Outage: client.FailClosed,
				Wait: 5 * time.Second, Limits: []client.Limit{{Window: time.Second, Max: 2}}},
			Checks: func(*http.Request) []client.Check { return []client.Check{{Key: key}} },
		}
		change(&o)
		rt, err := client.NewTransport(o)
		must.Succeed(t, err)
		return &http.Client{Transport: rt}
	}
	patient := transport("patient", func(*client.TransportOptions) {})
	for range 5 {
		resp, err := patient.Get(api.URL)
		must.Succeed(t, err)
		must.Succeed(t, resp.Body.Close())
	}
	if n := answered.Load(); n != 5 {
		t.Errorf("%d were answered", n)
	}
	hasty := transport("hasty", func(o *client.TransportOptions) {
		o.Limits = []client.Limit{{Window: time.Hour, Max: 1}}
	})
	resp, err := hasty.Get(api.URL)
	must.Succeed(t, err)
	must.Succeed(t, resp.Body.Close())
	if _, err := hasty.Post(api.URL, "text/plain", strings.NewReader("x")); !errors.Is(err,
		client.ErrNoTurn) {
		t.Errorf("without room for an hour: %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	r, err := http.NewRequestWithContext(left, "GET", api.URL, nil)
	must.Succeed(t, err)
	if _, err := patient.Transport.RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Errorf("of one that left: %v", err)
	}
	if n := answered.Load(); n != 6 {
		t.Errorf("%d were answered, want 6", n)
	}
}

// TestTransportThatNeverMaySend has a limit of none: no wait brings a turn, so it tries once.
func TestTransportThatNeverMaySend(t *testing.T) {
	b := newBed(t, 1)
	rt, err := client.NewTransport(client.TransportOptions{
		GateOptions: client.GateOptions{Client: b.client(), Outage: client.FailOpen,
			Wait: 5 * time.Second, Limits: []client.Limit{{Window: time.Second}}},
		Checks:  func(*http.Request) []client.Check { return []client.Check{{Key: "k"}} },
		MaxWait: 3 * time.Second,
		Base:    http.NewFileTransport(nil), // panics if it is called
	})
	must.Succeed(t, err)
	body := &closed{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:1", body)
	must.Succeed(t, err)
	if _, err := rt.RoundTrip(r); !errors.Is(err, client.ErrNoTurn) || !body.is {
		t.Errorf("%v, its body is closed: %t", err, body.is)
	}
	var asked int64
	for _, n := range b.ops("acquire") {
		asked += n
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// closed is a body that records whether it was closed.
type closed struct {
	io.Reader
	is bool
}

// Close implements io.Closer.
func (c *closed) Close() error {
	c.is = true
	return nil
}
