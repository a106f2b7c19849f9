package main

import (
	"context"
	"testing"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/internal/testing/must"
)

// skewed is an exact log whose windows are longer or shorter than they should be.
type skewed struct {
	limiter.Exact
	by int64
}

func (s *skewed) Decide(ctx context.Context, calls []limiter.Call) (int, error) {
	wrong := make([]limiter.Check, len(calls[0].Checks))
	for i, c := range calls[0].Checks {
		wrong[i] = limiter.Check{Key: c.Key, N: c.N}
		for _, l := range c.Limits {
			wrong[i].Limits = append(wrong[i].Limits,
				limiter.Limit{Window: l.Window + s.by, Max: l.Max})
		}
	}
	return s.Exact.Decide(ctx, []limiter.Call{limiter.At(calls[0].TS, wrong...)})
}

func TestJudge(t *testing.T) {
	const day = 24 * 3_600_000
	events := drive.Messages{Seed: 5, From: 20_000 * day, To: 20_001 * day, Receivers: 60}.Events()
	cases := []struct {
		by                             int64
		over, early, overFar, earlyFar bool
	}{
		{by: 0},
		{by: -900, over: true},
		{by: +900, early: true},
		{by: -9000, over: true, overFar: true},
		{by: +9000, early: true, earlyFar: true},
	}
	for _, c := range cases {
		tally, err := replay(t.Context(), &skewed{by: c.by}, events, time.Time{})
		must.Succeed(t, err)
		t.Logf("%+d ms: %+v", c.by, [...]int{tally.Admitted, tally.Over, tally.OverBeyond,
			tally.Early, tally.EarlyBeyond})
		if tally.Over > 0 != c.over || tally.Early > 0 != c.early ||
			tally.OverBeyond > 0 != c.overFar || tally.EarlyBeyond > 0 != c.earlyFar {
			t.Errorf("windows off by %d ms", c.by)
		}
	}
}

func TestWorkedExamplesOfExactLog(t *testing.T) {
	want := []int{2, 1, 2, 0}
	for i, e := range examples() {
		if got, err := e.run(t.Context(), &limiter.Exact{}, "k", 1_700_000_000_000); err != nil ||
			got != want[i] {
			t.Errorf("%s: %d, %v", e.Title, got, err)
		}
	}
}
