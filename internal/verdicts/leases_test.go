package verdicts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/verdicts"
)

// tallying returns a run, and the rules and verdicts that it counts.
func tallying() (*verdicts.Run, *[]string) {
	all := new([]string)
	return begin(verdicts.New(decisions.Func(func(d *decisions.Decision) {
		text := fmt.Sprintf("%s %v", d.RuleName(), d.Verdict)
		if d.Repeated && d.Verdict == twotier.Refused {
			text += " again"
		}
		*all = append(*all, text)
	})), ""), all
}

// TestLeasesAreCounted: limits on leases count with the limits on events of their rule, or alone,
// and those without a rule with the other limits of the request.
func TestLeasesAreCounted(t *testing.T) {
	calls := &twotier.Rule{Name: "calls", Concurrent: 2}
	lease := func(rule string, refused, shadow bool) twotier.LeaseResult {
		return twotier.LeaseResult{Lease: twotier.Lease{Rule: rule, Shadow: shadow},
			Refused: refused}
	}
	limits := []twotier.LimitResult{{Window: 1, Max: 9}}
	ruled := func(int) verdicts.Origin { return verdicts.Origin{Rule: calls, Max: 9, First: true} }
	for name, test := range map[string]struct {
		limits []twotier.LimitResult
		of     func(int) verdicts.Origin
		leases []twotier.LeaseResult
		want   string
	}{
		"of the rule with windows": {limits, ruled,
			[]twotier.LeaseResult{lease("calls", true, false)}, "calls refused"},
		"of a rule without windows": {nil, nil, []twotier.LeaseResult{lease("call", true, false)},
			"call refused"},
		"of a rule without windows, while rules judge other checks": {nil, ruled,
			[]twotier.LeaseResult{lease("call", false, false)}, "call allowed"},
		"of another rule": {limits, ruled, []twotier.LeaseResult{lease("calls", false, false),
			lease("watched", true, true)}, "calls allowed; watched shadow_refused"},
		"of the request": {nil, nil, []twotier.LeaseResult{lease("", false, false),
			lease("", true, false)}, " refused"},
	} {
		op := &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
		res := &twotier.Result{Leases: test.leases, Checks: []twotier.CheckResult{{
			Limits: test.limits}}}
		run, got := tallying()
		run.BeginDecision()
		run.CountCheck(op, 0, res, test.of)
		run.End(0)
		if text := strings.Join(*got, "; "); text != test.want {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}

// TestHoldsHaveDecisions: a rule that limits only holds has a decision, with the version of the
// rules, whether it refused or not.
func TestHoldsHaveDecisions(t *testing.T) {
	run, all := recording(verdicts.HTTP, twotier.VerdictCount)
	run.LeaseRules = 7
	op := &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
	run.BeginDecision()
	run.CountCheck(op, 0, &twotier.Result{Checks: make([]twotier.CheckResult, 1),
		Leases: []twotier.LeaseResult{{Lease: twotier.Lease{Rule: "calls"}, Refused: true},
			{Lease: twotier.Lease{Rule: "rest"}}, {}}}, nil)
	run.End(0)
	want := []string{`http :k x1 "calls" v7 refused []`, `http :k x1 "rest" v7 allowed []`,
		`http :k x1 "" v0 allowed []`}
	if !slices.Equal(*all, want) {
		t.Errorf("%q, want %q", *all, want)
	}
}

// TestLeasesAllocateNothing: counting a verdict on leases needs no memory of its own.
func TestLeasesAllocateNothing(t *testing.T) {
	run, c, of := new(verdicts.Run), verdicts.New(), &verdicts.Arrival{Endpoint: verdicts.RESP}
	op := &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
	res := &twotier.Result{Checks: make([]twotier.CheckResult, 1),
		Leases: []twotier.LeaseResult{{Lease: twotier.Lease{Rule: "calls"}}}}
	if n := testing.AllocsPerRun(100, func() {
		run.Begin(c, of)
		run.BeginDecision()
		run.CountCheck(op, 0, res, nil)
		run.End(0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
