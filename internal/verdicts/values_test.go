package verdicts_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/verdicts"
)

// TestValuesBesideEventsAreCounted: events and values of one decision have a verdict each, also if
// values refuse because those of the key are unknown.
func TestValuesBesideEventsAreCounted(t *testing.T) {
	devices := twotier.Rule{Name: "devices", Distinct: []twotier.RuleLimit{{Window: 1, Max: 2,
		Text: "1ms"}}}
	rules := twotier.NewRuleSet([]twotier.Rule{devices})
	for name, test := range map[string]struct {
		events bool // their limit refuses
		values distinct.Result
		want   string
	}{
		"allowed": {false, distinct.Result{Allowed: true}, " allowed 1; devices allowed 1"},
		"values":  {false, distinct.Result{Over: []int{0}}, " allowed 1; devices refused 1"},
		"events":  {true, distinct.Result{Allowed: true}, " refused 1; devices allowed 1"},
		"both":    {true, distinct.Result{Over: []int{0}}, " refused 1; devices refused 1"},
		"unknown": {false, distinct.Result{}, " allowed 1;  refused 1"},
	} {
		v := verdicts.Values{Op: distinct.Op{Key: []byte("k")}, Add: [][]byte{[]byte("a")}}
		if wrong := v.AddRules([]*twotier.Rule{rules.Find([]byte("devices"))}, 1); wrong != nil {
			t.Fatal(wrong)
		}
		test.values.Counts = []distinct.Count{{Window: 1}}
		op := &twotier.Op{Kind: twotier.Acquire, Values: []twotier.ValuesOf{{}},
			Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
		res := &twotier.Result{Values: []twotier.CheckResult{{Refused: !test.values.Allowed}},
			Checks: []twotier.CheckResult{{Refused: test.events || !test.values.Allowed,
				Limits: []twotier.LimitResult{{Window: 1, Max: 9, Refused: test.events}}}}}
		var got tally
		run := verdicts.Begin(&got, "")
		run.BeginDecision()
		run.CountCheck(op, 0, res, nil)
		run.AddValues(&v, &test.values)
		run.End(0)
		if text := strings.Join(got, "; "); text != test.want {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}
