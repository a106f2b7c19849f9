package verdicts_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/verdicts"
)

// TestValuesBesideEventsAreCounted: events and values of one decision have a verdict each, also if
// values refuse because those of the key are unknown.
func TestValuesBesideEventsAreCounted(t *testing.T) {
	devices := twotier.Rule{Name: "devices", Distinct: []twotier.RuleLimit{{Window: 1, Max: 2,
		Text: "1ms"}}}
	rules := twotier.NewRuleSet([]twotier.Rule{devices})
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
		v := verdicts.Values{Key: []byte("k"), Add: [][]byte{[]byte("a")}}
		if wrong := v.AddRules([]*twotier.Rule{rules.Find([]byte("devices"))}, 1); wrong != nil {
			t.Fatal(wrong)
		}
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
		run.CountValues(&v, &values)
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
		run.CountCheck(op, 0, &test.res, func(int) verdicts.Origin {
			return verdicts.Origin{Rule: login, Max: 9, First: true}
		})
		if text := strings.Join(*got, "; "); text != test.want {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}
