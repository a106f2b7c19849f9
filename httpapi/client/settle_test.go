package client_test

import (
	"errors"
	"slices"
	"testing"
	"time"

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
		open.Source != client.SourceMemory {
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
		[]client.KeyCount{{Namespace: "default", Key: "ann", Count: 1}}) {
		t.Errorf("most open: %+v, %v", top, err)
	}
	for _, repeated := range []bool{false, true} {
		s, err := c.SettleKeys(ctx, id, []client.Settled{{Key: "team", N: 13}})
		if err != nil || s.Repeated != repeated || !slices.Equal(s.Over, []string{"limits[0]"}) {
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
	if ben := counted(t, c, "ben"); ben != 0 {
		t.Errorf("%d events were not released", ben)
	}
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
