package verdicts_test

import (
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/verdicts"
)

// recording returns a run at an endpoint, and the decisions about it except those with one verdict.
func recording(endpoint string, without twotier.Verdict) (*verdicts.Run, *[]string) {
	all := new([]string)
	return begin(verdicts.New(sinkWithout{func(d *decisions.Decision) {
		var limits []string
		for _, l := range d.Limits {
			limits = append(limits, fmt.Sprint(l.Window, l.Period, l.Count, l.Max))
		}
		*all = append(*all, fmt.Sprintf("%s %s:%s x%d %q v%d %v %v", d.Door, d.NS, d.Key, d.N,
			d.RuleName(), d.Version, d.Verdict, limits))
	}, without}), endpoint), all
}

// sinkWithout receives all decisions except those with one verdict.
type sinkWithout struct {
	decisions.Func
	without twotier.Verdict
}

func (s sinkWithout) Receives(v twotier.Verdict) bool { return v != s.without }

// TestRecords records a check judged by a rule, a rule in shadow, a rule that is off, and limits
// without a rule: one decision for each that judges, with the limits and maxima of that judge.
func TestRecords(t *testing.T) {
	on := &twotier.Rule{Name: "on"}
	shadow := &twotier.Rule{Name: "shadow", State: twotier.RuleShadow}
	off := &twotier.Rule{Name: "off", State: twotier.RuleOff}
	origins := []verdicts.Origin{{Rule: on, Max: 9, First: true, Version: 3},
		{Rule: on, Max: 50, Version: 3}, {Rule: shadow, Max: 4, First: true, Version: 3},
		{Rule: off, Max: 1, First: true, Version: 3}, {}, {}}
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{NS: []byte("sms"),
		Key: []byte("k"), N: 2}}}
	res := twotier.Result{Allowed: true, Checks: []twotier.CheckResult{{}}}
	for i, max := range []int64{9, 50, twotier.Unlimited, twotier.Unlimited, 7, 8} {
		res.Checks[0].Limits = append(res.Checks[0].Limits,
			twotier.LimitResult{Window: int64(i+1) * 1000, Count: 5, Max: max})
	}
	day, err := twotier.ParsePeriod("day")
	must.Succeed(t, err)
	res.Checks[0].Limits[5].Window, res.Checks[0].Limits[5].Period = 0, day
	for _, tt := range []struct {
		without twotier.Verdict
		of      func(k int) verdicts.Origin
		want    []string
	}{
		{twotier.Refused, func(k int) verdicts.Origin { return origins[k] }, []string{
			`resp sms:k x2 "on" v3 allowed [1000 <nil> 5 9 2000 <nil> 5 50]`,
			`resp sms:k x2 "shadow" v3 shadow_refused [3000 <nil> 5 4]`,
			`resp sms:k x2 "" v0 allowed [5000 <nil> 5 7 0 day 5 8]`}},
		{twotier.Allowed, func(k int) verdicts.Origin { return origins[k] }, []string{
			`resp sms:k x2 "shadow" v3 shadow_refused [3000 <nil> 5 4]`}},
		{twotier.Refused, nil, []string{fmt.Sprintf(`resp sms:k x2 "" v0 allowed [`+
			`1000 <nil> 5 9 2000 <nil> 5 50 3000 <nil> 5 %[1]d 4000 <nil> 5 %[1]d `+
			`5000 <nil> 5 7 0 day 5 8]`,
			int64(twotier.Unlimited))}},
	} {
		run, all := recording(verdicts.RESP, tt.without)
		run.CountCheck(&op, 0, &res, tt.of)
		if !slices.Equal(*all, tt.want) {
			t.Errorf("without %v:\n%q\nwant\n%q", tt.without, *all, tt.want)
		}
	}
}

// TestRecordsOfValues records decisions about values. The count alone does not show whether a limit
// was too low, even for a rule in shadow when another limit refused, because values that the window
// has already don't count again.
func TestRecordsOfValues(t *testing.T) {
	op := verdicts.Values{Key: []byte("k"), Add: make([][]byte, 7),
		Limits: []twotier.Limit{{Window: 1000, Max: 4}}}
	if wrong := op.AddRules([]*twotier.Rule{
		{Name: "shadow", Namespace: "cards", State: twotier.RuleShadow,
			Distinct: []twotier.RuleLimit{{Window: 2000, Max: 5}}},
		{Name: "off", Namespace: "cards", State: twotier.RuleOff,
			Distinct: []twotier.RuleLimit{{Window: 2000, Max: 0}}},
		{Name: "on", Namespace: "cards", Distinct: []twotier.RuleLimit{{Window: 3000, Max: 9},
			{Window: 4000, Max: 50, Text: "4s"}}},
	}, 3); wrong != nil {
		t.Fatal(wrong)
	}
	op.Limits, op.Windows = append(op.Limits, twotier.Limit{Window: 5000}), 1
	for _, tt := range []struct {
		over    []int
		allowed bool
		want    []string
	}{
		{nil, true, []string{`http cards:k x7 "" v0 allowed [1000 <nil> 4 4]`,
			`http cards:k x7 "shadow" v3 allowed [2000 <nil> 4 5]`,
			`http cards:k x7 "on" v3 allowed [3000 <nil> 4 9 4000 <nil> 4 50]`}},
		{[]int{1}, true, []string{`http cards:k x7 "" v0 allowed [1000 <nil> 4 4]`,
			`http cards:k x7 "shadow" v3 shadow_refused [2000 <nil> 4 5]`,
			`http cards:k x7 "on" v3 allowed [3000 <nil> 4 9 4000 <nil> 4 50]`}},
		{[]int{0, 1, 3}, false, []string{`http cards:k x7 "" v0 refused [1000 <nil> 4 4]`,
			`http cards:k x7 "shadow" v3 shadow_refused [2000 <nil> 4 5]`,
			`http cards:k x7 "on" v3 refused [3000 <nil> 4 9 4000 <nil> 4 50]`}},
	} {
		run, all := recording(verdicts.HTTP, twotier.VerdictCount)
		res := &twotier.CheckResult{Refused: !tt.allowed}
		for k, l := range op.Limits {
			res.Limits = append(res.Limits, twotier.LimitResult{Window: l.Window, Max: l.Max,
				Count: 4, Refused: slices.Contains(tt.over, k)})
		}
		run.BeginDecision()
		run.CountValues(&op, res)
		if !slices.Equal(*all, tt.want) {
			t.Errorf("over %v:\n%q\nwant\n%q", tt.over, *all, tt.want)
		}
	}
}
