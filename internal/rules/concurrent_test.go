package rules_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// TestConcurrent reads limits on how many holds are open, and refuses wrong ones with their place.
func TestConcurrent(t *testing.T) {
	d, err := rules.Read("f", []byte("rules:\n"+
		"- {name: calls, limits: [15/1m, {concurrent: 5}], default: true}\n"+
		"- {name: alone, concurrent: 1, namespace: x, default: true}\n"))
	must.Succeed(t, err)
	calls, alone := d.Rules.Find([]byte("calls")), d.Rules.Find([]byte("alone"))
	if calls.Concurrent != 5 || len(calls.Limits) != 1 || alone.Concurrent != 1 ||
		len(alone.Limits) != 0 || !alone.JudgesEvents() {
		t.Errorf("%+v, %+v", calls, alone)
	}
	if of := d.Rules.Defaults([]byte("x")); len(of) != 1 || of[0] != alone {
		t.Errorf("the default rules are %v", of)
	}
	const override = "limits: [1/1m], overrides: [{key: k, limits: [{concurrent: 1}]}]"
	for _, wrong := range [][2]string{
		{"limits: [{concurrent: 0}]", `f:2:35: concurrent: "0" is not a number`},
		{"limits: [{concurrent: x}]", `f:2:35: concurrent: "x" is not a number`},
		{"limits: [{concurrent: 1}, {concurrent: 2}]", "f:2:39: concurrent: given twice"},
		{"concurrent: 0", `f:2:25: concurrent: "0" is not a number`},
		{"limits: [{concurrent: 1}], concurrent: 2", "f:2:52: concurrent: given twice"},
		{"limits: [{concurrent: 1, max: 2}]", `f:2:23: unknown key "concurrent"; a limit`},
		{"distinct: [{concurrent: 1}]", `f:2:25: unknown key "concurrent"; a limit`},
		{override, "only the rule itself has {concurrent: 1}"},
	} {
		text, want := wrong[0], wrong[1]
		_, err := rules.Read("f", []byte("rules:\n- {name: r, "+text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
