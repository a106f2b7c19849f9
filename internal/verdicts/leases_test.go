package verdicts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/verdicts"
)

// tally lists counted verdicts.
type tally []string

func (t *tally) Count(_ string, _ []byte, rule string, v twotier.Verdict, n int64) {
	*t = append(*t, fmt.Sprintf("%s %v %d", rule, v, n))
}

func (*tally) ObserveDuration(string, time.Duration, [twotier.VerdictCount]int64) {}

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
			[]twotier.LeaseResult{lease("calls", true, false)}, "calls refused 1"},
		"of a rule without windows": {nil, nil, []twotier.LeaseResult{lease("call", true, false)},
			"call refused 1"},
		"of another rule": {limits, ruled, []twotier.LeaseResult{lease("calls", false, false),
			lease("watched", true, true)}, "calls allowed 1; watched shadow_refused 1"},
		"of the request": {nil, nil, []twotier.LeaseResult{lease("", false, false),
			lease("", true, false)}, " refused 1"},
	} {
		op := &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
		res := &twotier.Result{Leases: test.leases, Checks: []twotier.CheckResult{{
			Limits: test.limits}}}
		var got tally
		run := verdicts.Begin(&got, "")
		run.BeginDecision()
		run.CountCheck(op, 0, res, test.of)
		run.End(0)
		if text := strings.Join(got, "; "); text != test.want {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}
