package verdicts_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/verdicts"
)

// crossings keeps the limits of the recorded crossings.
type crossings []twotier.Compared

func (c *crossings) RecordCrossing(of *verdicts.Crossing) { *c = append(*c, of.Limit) }

// TestCrossingsOfCalendarLimits records the period of a limit that has reached its level.
func TestCrossingsOfCalendarLimits(t *testing.T) {
	day, err := twotier.ParsePeriod("day")
	must.Succeed(t, err)
	var got crossings
	counters := verdicts.New()
	counters.Crossings = &got
	rule := &twotier.Rule{Name: "quota", Warn: 80}
	res := twotier.Result{Allowed: true, Checks: []twotier.CheckResult{
		{Limits: []twotier.LimitResult{{Max: 10, Count: 8, Period: day}}}}}
	run := verdicts.Begin(counters, verdicts.HTTP)
	run.BeginDecision()
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
	run.CountCheck(&op, 0, &res,
		func(int) verdicts.Origin { return verdicts.Origin{Rule: rule, Max: 10, First: true} })
	if want := (twotier.Compared{Period: day, Count: 8, Max: 10}); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
