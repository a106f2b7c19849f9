package verdicts_test

import (
	"fmt"
	"slices"
	"strings"
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

// limitOf returns limit i of a rule of version 3, whose limits have that maximum.
func limitOf(rule *twotier.Rule, i int, most int64) *verdicts.Ruled {
	return &verdicts.Ruled{Rule: rule, Index: i, Version: 3,
		Limits: slices.Repeat([]twotier.RuleLimit{{Max: most}}, i+1)}
}

// TestRecords records a check judged by a rule, a rule in shadow, a rule that is off, and limits
// without a rule: one decision for each that judges, with the limits and maxima of that judge.
func TestRecords(t *testing.T) {
	on := &twotier.Rule{Name: "on"}
	shadow := &twotier.Rule{Name: "shadow", State: twotier.RuleShadow}
	off := &twotier.Rule{Name: "off", State: twotier.RuleOff}
	limits := []*verdicts.Ruled{limitOf(on, 0, 9), limitOf(on, 1, 50), limitOf(shadow, 0, 4),
		limitOf(off, 0, 1), nil, nil}
	of := func(k int) *verdicts.Ruled { return limits[k] }
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
		of      func(k int) *verdicts.Ruled
		want    []string
	}{
		{twotier.Refused, of, []string{
			`resp sms:k x2 "on" v3 allowed [1000 <nil> 5 9 2000 <nil> 5 50]`,
			`resp sms:k x2 "shadow" v3 shadow_refused [3000 <nil> 5 4]`,
			`resp sms:k x2 "" v0 allowed [5000 <nil> 5 7 0 day 5 8]`}},
		{twotier.Allowed, of, []string{
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
	check := &twotier.Check{NS: []byte("cards"), Key: []byte("k")}
	shadow := &twotier.Rule{Name: "shadow", State: twotier.RuleShadow}
	on := &twotier.Rule{Name: "on"}
	limits := []*verdicts.Ruled{nil, limitOf(shadow, 0, 5), limitOf(on, 0, 9), limitOf(on, 1, 50)}
	for _, l := range limits[1:] {
		l.Distinct = true
	}
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
		for k, most := range []int64{4, 5, 9, 50} {
			res.Limits = append(res.Limits, twotier.LimitResult{Window: int64(k+1) * 1000,
				Max: most, Count: 4, Refused: slices.Contains(tt.over, k)})
		}
		run.BeginDecision()
		run.CountValues(check, 7, res, func(k int) *verdicts.Ruled { return limits[k] })
		if !slices.Equal(*all, tt.want) {
			t.Errorf("over %v:\n%q\nwant\n%q", tt.over, *all, tt.want)
		}
	}
}

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
	ruled := func(int) *verdicts.Ruled { return limitOf(calls, 0, 9) }
	for name, test := range map[string]struct {
		limits []twotier.LimitResult
		of     func(int) *verdicts.Ruled
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

// TestValuesBesideEventsAreCounted: events and values of one decision have a verdict each, also if
// values refuse because those of the key are unknown.
func TestValuesBesideEventsAreCounted(t *testing.T) {
	devices := &twotier.Rule{Name: "devices"}
	for name, test := range map[string]struct {
		events bool   // their limit refuses
		values string // their outcome
		want   string
	}{
		"allowed": {false, "allowed", " allowed; devices allowed"},
		"values":  {false, "refused", " allowed; devices refused"},
		"events":  {true, "allowed", " refused; devices allowed"},
		"both":    {true, "refused", " refused; devices refused again"},
		"unknown": {false, "unknown", " allowed;  refused"},
	} {
		values := twotier.CheckResult{Refused: test.values != "allowed",
			Limits: []twotier.LimitResult{{Window: 1, Refused: test.values == "refused"}}}
		op := &twotier.Op{Kind: twotier.Acquire, Values: []twotier.ValuesOf{{}},
			Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
		res := &twotier.Result{Values: []twotier.CheckResult{values},
			Checks: []twotier.CheckResult{{Refused: test.events || values.Refused,
				Limits: []twotier.LimitResult{{Window: 1, Max: 9, Refused: test.events}}}}}
		run, got := tallying()
		run.BeginDecision()
		run.BeginCheck()
		run.CountCheck(op, 0, res, nil)
		run.CountValues(&op.Checks[0], 1, &values, func(int) *verdicts.Ruled {
			return &verdicts.Ruled{Rule: devices, Limits: make([]twotier.RuleLimit, 1),
				Distinct: true}
		})
		run.End(0)
		if text := strings.Join(*got, "; "); text != test.want {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}

// TestUnknownCountsRefuse: a check that was refused although no rule refuses it has a refusal
// without a rule, because its counts are unknown.
func TestUnknownCountsRefuse(t *testing.T) {
	login := &twotier.Rule{Name: "login"}
	op := &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
	for name, test := range map[string]struct {
		res  twotier.Result
		want string
	}{
		"unknown": {twotier.Result{}, " refused"},
		"a ban":   {twotier.Result{Bans: []twotier.BanResult{{Rule: "login"}}}, "login refused"},
		"a lease": {twotier.Result{Leases: []twotier.LeaseResult{{Refused: true,
			Lease: twotier.Lease{Rule: "login"}}}}, "login refused"},
	} {
		run, got := tallying()
		test.res.Checks = []twotier.CheckResult{{Refused: true,
			Limits: []twotier.LimitResult{{Window: 1, Max: 9}}}}
		run.CountCheck(op, 0, &test.res, func(int) *verdicts.Ruled {
			return limitOf(login, 0, 9)
		})
		if text := strings.Join(*got, "; "); text != test.want {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}
