package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
)

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
