package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// TestHolds holds keys of several nodes, renews and settles, each request at any node.
func TestHolds(t *testing.T) {
	c := newBed(t, 3).client()
	ctx := t.Context()
	hour := []client.Limit{{Window: time.Hour, Max: 10}}
	hold := client.AcquireRequest{Hold: time.Minute, Checks: []client.Check{
		{Key: "team", N: 8, Limits: hour}, {Key: "ann", N: 8, Limits: hour, Concurrent: 1}}}
	a, err := c.Acquire(ctx, hold)
	must.Succeed(t, err)
	if open := a.Checks[1].Limits[1]; !a.Allowed || a.Hold == "" || !open.Concurrent ||
		open.Count != 1 || open.Max != 1 || time.Until(a.Until) > time.Minute+time.Second {
		t.Fatalf("%+v", a)
	}
	if b, err := c.Acquire(ctx, client.AcquireRequest{Hold: time.Minute, Check: client.Check{
		Key: "ann", Concurrent: 1}}); err != nil || b.Allowed || !b.Limits[0].Refused {
		t.Errorf("%+v, %v", b, err)
	}
	if open, err := c.OpenHolds(ctx, "default", "ann"); err != nil || open.Open != 1 ||
		open.NextEnd <= 0 || open.NextEnd > time.Minute+time.Second || open.Degraded ||
		open.Source != twotier.SourceMemory {
		t.Errorf("open: %+v, %v", open, err)
	}
	id, until, err := c.Renew(ctx, a.Hold, 10*time.Minute)
	must.Succeed(t, err)
	if time.Until(until) < 9*time.Minute || id == a.Hold {
		t.Errorf("renewed as %s until %v", id, until)
	}
	if open, err := c.OpenHolds(ctx, "", "ann"); err != nil || open.Open != 1 ||
		open.NextEnd < 9*time.Minute {
		t.Errorf("renewed: %+v, %v", open, err)
	}
	if top, err := c.TopConcurrent(ctx, 5); err != nil || !slices.Equal(top,
		[]twotier.KeyCount{{NS: "default", Key: "ann", Count: 1}}) {
		t.Errorf("most open: %+v, %v", top, err)
	}
	for _, repeated := range []bool{false, true} {
		s, err := c.SettleKeys(ctx, id, []client.Settled{{Key: "team", N: 13}})
		if err != nil || s.Repeated != repeated ||
			!slices.Equal(s.Over, []string{"checks[0].limits[0]"}) {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if team, ann := counted(t, c, "team"), counted(t, c, "ann"); team != 13 || ann != 8 {
		t.Errorf("%d and %d, want 13 and 8", team, ann)
	}
	b, err := c.Acquire(ctx, client.AcquireRequest{Hold: time.Minute, Check: client.Check{
		Key: "ann", N: 2, Concurrent: 1}})
	if err != nil || !b.Allowed {
		t.Errorf("%+v, %v", b, err)
	}
	if s, err := c.Settle(ctx, b.Hold, 0); err != nil || s.Repeated || s.Over != nil {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = c.Acquire(ctx, client.AcquireRequest{Hold: time.Millisecond, Release: true,
		Check: client.Check{Key: "ben", N: 3, Limits: hour}})
	must.Succeed(t, err)
	for range 500 {
		if time.Sleep(10 * time.Millisecond); counted(t, c, "ben") == 0 {
			break
		}
	}
	expect(t, c, "ben", 0)
	if _, err := c.Settle(ctx, "none", 1); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no such hold: %v", err)
	}
	for _, wrong := range []client.AcquireRequest{{Check: client.Check{Key: "k", Concurrent: 1}},
		{Check: client.Check{Key: "k", Limits: hour}, Hold: 25 * time.Hour}} {
		if a, err := c.Acquire(ctx, wrong); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %+v, %v", wrong, a, err)
		}
	}
}

// holdOne holds one event of a key and returns the id.
func holdOne(t *testing.T, c *client.Client, key string) string {
	t.Helper()
	a, err := c.Acquire(t.Context(), client.AcquireRequest{Hold: time.Minute,
		Check: client.Check{Key: key, Concurrent: 100}})
	must.Succeed(t, err)
	return a.Hold
}

const (
	settle = "POST /v1/settle"
	renew  = "POST /v1/renew"
)

// TestHoldsWithoutAnswers loses answers, on new connections and on kept ones. Settlements are
// repeated; a renewal is refused when it is repeated, which is no evidence of its outcome.
func TestHoldsWithoutAnswers(t *testing.T) {
	b, _ := proxied(t, 1)
	c := b.client()
	for range 8 {
		lost := b.nodes[0].proxy.SwallowNext(renew)
		_, _, err := c.Renew(t.Context(), holdOne(t, c, "renewed"), time.Hour)
		if !errors.Is(err, client.ErrUnknownOutcome) || errors.Is(err, client.ErrInvalid) {
			t.Errorf("a renewal: %v", err)
		}
		<-lost
		id := holdOne(t, c, "settled")
		lost = b.nodes[0].proxy.SwallowNext(settle)
		if s, err := c.Settle(t.Context(), id, 5); err != nil || !s.Repeated {
			t.Errorf("a settlement: %+v, %v", s, err)
		}
		<-lost
	}
	expect(t, c, "settled", 8*5)
	b.nodes[0].proxy.SwallowMatching(settle, 100, true)
	if s, err := c.Settle(t.Context(), holdOne(t, c, "settled"), 5); !errors.Is(err,
		client.ErrUnknownOutcome) || errors.Is(err, client.ErrUnavailable) {
		t.Errorf("a settlement that nobody answers: %+v, %v", s, err)
	}
}

// TestHoldsWithSenselessAnswers: an answer that is not the server's is none.
func TestHoldsWithSenselessAnswers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "[]")
	}))
	defer s.Close()
	c := newClient(t, client.Options{Addresses: []string{s.Listener.Addr().String()}})
	_, settled := c.Settle(t.Context(), "id", 1)
	_, _, renewed := c.Renew(t.Context(), "id", time.Hour)
	_, read := c.Top(t.Context(), 1, time.Hour)
	_, tested := c.Backtest(t.Context(), client.BacktestRequest{Rules: []string{"r"}})
	for want, errs := range map[error][]error{client.ErrUnknownOutcome: {settled, renewed},
		client.ErrUnavailable: {read, tested}} {
		for i, err := range errs {
			if !errors.Is(err, want) {
				t.Errorf("call %d: %v, want: %v", i, err, want)
			}
		}
	}
}

// TestHoldsEndWithTheirContext ends the context of a settlement that waits for its answer. The
// connection has an answer to come, and is not used again.
func TestHoldsEndWithTheirContext(t *testing.T) {
	b, _ := proxied(t, 1)
	c := b.client()
	id := holdOne(t, c, "a")
	lost := b.nodes[0].proxy.SwallowMatching(settle, 1, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	settled := make(chan error, 1)
	go func() {
		_, err := c.Settle(ctx, id, 7)
		settled <- err
	}()
	<-lost
	cancel()
	if err := <-settled; !errors.Is(err, client.ErrUnknownOutcome) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("after the request: %v", err)
	}
	_, _, err := c.Renew(ctx, holdOne(t, c, "b"), time.Hour)
	if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("before the request: %v", err)
	}
	for range 5 { // on each of the connections
		if s, err := c.Settle(t.Context(), id, 7); err != nil || !s.Repeated {
			t.Errorf("%+v, %v", s, err)
		}
	}
	expect(t, c, "a", 7)
}

// TestCloseDuringASettlement cuts the connection of a settlement, which may have been executed.
// Nothing can be called afterwards.
func TestCloseDuringASettlement(t *testing.T) {
	b, _ := proxied(t, 1)
	c, err := client.New(client.Options{Addresses: []string{b.nodes[0].reached()},
		Timeout: time.Minute})
	must.Succeed(t, err)
	id := holdOne(t, c, "a")
	lost := b.nodes[0].proxy.SwallowMatching(settle, 1, false)
	settled := make(chan error, 1)
	go func() {
		_, err := c.Settle(t.Context(), id, 7)
		settled <- err
	}()
	<-lost
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("closed without waiting: %v", err)
	}
	if err := <-settled; !errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("a settlement that Close cut off: %v", err)
	}
	must.Succeed(t, c.Close(t.Context()))
	for name, err := range callAll(t.Context(), c, id) {
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

// callAll makes one call of each kind and returns their errors.
func callAll(ctx context.Context, c *client.Client, hold string) map[string]error {
	hour := []client.Limit{{Window: time.Hour, Max: 10}}
	errs := map[string]error{"refresh": c.Refresh(ctx), "reset": c.Reset(ctx, "", "k")}
	_, errs["add"] = c.Add(ctx, client.AddRequest{Key: "k"})
	_, errs["count"] = c.Count(ctx, client.CountRequest{Key: "k",
		Windows: []time.Duration{time.Hour}})
	_, errs["acquire"] = c.Acquire(ctx, client.AcquireRequest{
		Check: client.Check{Key: "k", Limits: hour}})
	_, errs["distinct"] = c.Distinct(ctx, client.DistinctRequest{Key: "k", Values: []string{"a"}})
	_, errs["batch"] = c.Batch(ctx, []client.Op{{Add: &client.AddRequest{Key: "k"}}})
	_, errs["series"] = c.Series(ctx, "", "k", time.Hour)
	_, errs["top"] = c.Top(ctx, 1, time.Minute)
	_, errs["settle"] = c.Settle(ctx, hold, 1)
	_, errs["settle keys"] = c.SettleKeys(ctx, hold, []client.Settled{{Key: "a", N: 1}})
	_, _, errs["renew"] = c.Renew(ctx, hold, time.Hour)
	_, errs["backtest"] = c.Backtest(ctx, client.BacktestRequest{Rules: []string{"r"}})
	return errs
}

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
