package ruletest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/ruletest"
	"twotier.dev/twotier/internal/testing/must"
)

// stepOf returns a file with one step.
func stepOf(step string) string {
	return "rules: [{name: a, limits: 1/1m}]\ntests:\n- {name: x, steps: [{" + step + "}]}\n"
}

// TestMistakesHaveTheirPlace has files with a mistake, in the tests, the rules and the namespaces.
func TestMistakesHaveTheirPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, tt := range []struct{ text, want string }{
		{"", "there is nothing in it"},
		{"tests: []", ":1:1: rules is missing"},
		{"rules: []\ntests: []", ":2:8: no tests"},
		{"rules: []", ":1:1: no tests"},
		{"rules: []\ntests: [{steps: []}]", ":2:9: a test without a name"},
		{"rules: []\ntests: [{name: x}]", `:2:9: test "x" has no steps`},
		{"rules: []\nrule: 1", `:2:1: unknown key "rule"; a file of tests has`},
		{"rules: []\ntests: [{name: x, start: now, steps: []}]",
			`:2:26: start: "now" is not a time`},
		{"rules: []\ntests: [{name: x, step: []}]", `:2:19: unknown key "step"; a test has`},
		{"rules: none.yaml\ntests: [{name: x, steps: []}]", ":1:8: rules: open "},
		{"rules: {}\ntests: [{name: x, steps: []}]", ":1:8: rules is not a single value"},
		{"rules: []\nconfig: none.yaml\ntests: [{name: x, steps: []}]", "--config: open "},
		{"rules: [{name: a}]\ntests: [{name: x, steps: []}]", ":1:9: rule a has no limits"},
		{"rules: [{name: a, limits: 1/30d}]\ntests: [{name: x, steps: []}]", ":1:27: a window of " +
			"720h is longer than its namespace covers (25h); it needs `1h x 744`"},
		{stepOf("at: 1s"), "no request; want key"},
		{stepOf("key: ''"), ":3:27: key: want 1 to 256 bytes"},
		{stepOf("key: a, at: 1mo"), "at: \"1mo\": a month has no fixed length"},
		{stepOf("key: a, at: 2025-12-31T00:00:00Z"), "at or after the start"},
		{stepOf("key: a, at: 1us"), "not a whole number of milliseconds"},
		{stepOf("key: a, n: -1"), `n: "-1" is not a number from 0 to 2147483647`},
		{stepOf("key: a, times: 0"), `times: "0" is not a number from 1`},
		{stepOf("key: a, expect: near"), `expect: "near" is neither allowed nor refused`},
		{stepOf("key: a, charge: yes"), `charge: "yes" is neither true nor false`},
		{stepOf("key: a, rule: b"), `unknown key "rule"; a step has at, times`},
		{stepOf("key: a, checks: [{key: b}]"), "want key, ns, n and rules in each of them"},
		{stepOf("checks: []"), "checks: the list is empty"},
		{stepOf("key: a, values: []"), "values: the list is empty"},
		{stepOf("domain: d, descriptors:"), "descriptors: the list is empty"},
		{stepOf("settle: '', n: 1"), "settle: no step before"},
		{stepOf("checks: [{n: 1}]"), "a check without a key"},
		{stepOf("checks: [{key: a, at: 1s}]"), `unknown key "at"; a check has`},
		{stepOf("values: a"), "values: want a key with them"},
		{stepOf("key: a, hold: 1m"), "hold and as: want both"},
		{stepOf("settle: one, n: 0"), "no step before has hold and as: one"},
		{stepOf("settle: one"), "settle: want n with it"},
		{stepOf("key: a, over: b"), "over: only a settlement has it"},
		{stepOf("key: a, hold: 1m, as: x, on_expiry: drop"),
			`on_expiry: "drop" is neither keep nor release`},
		{stepOf("key: a, on_expiry: release"), "on_expiry: want it only together with hold"},
		{stepOf("renew: one, for: 1m"), "renew: no step before has hold and as: one"},
		{stepOf("renew: one"), "renew: want for with it"},
		{stepOf("renew: one, for: 1m, n: 2"), "renew: want only for with it"},
		{stepOf("key: a, for: 1m"), "for: only a renewal has it"},
		{stepOf("descriptors: [{a: b}]"), "descriptors: want a domain with them"},
		{stepOf("domain: d, descriptors: [{}]"), "a descriptor without entries"},
		{stepOf("key: a, domain: d"), "domain: want descriptors with it"},
		{stepOf("key: a, counts: {a: x}"), `a: "x" is not a number from 0`},
		{stepOf("key: a, at: 5s}, {key: a, at: 4s"),
			":3:39: at: 4s is before the previous request, at 5s"},
		{stepOf("key: a, times: 9, every: 1s}, {key: a, at: 7999ms"),
			"is before the previous request, at 8s"},
		{stepOf("key: a, times: 1000000, every: 1000d"), "at most 20 years after the start"},
		{stepOf("key: a, times: 1000000}, {key: a"), "more than 1000000 requests"},
	} {
		text, want := tt.text, tt.want
		must.Write(t, path, text)
		_, err := ruletest.Read(path, "")
		if got := fmt.Sprint(err); !strings.Contains(got, want) ||
			!strings.HasPrefix(got, path) && !strings.HasPrefix(want, "--") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestRequestsThatNoServerTakesFail has requests that are well formed, and refused as invalid.
func TestRequestsThatNoServerTakesFail(t *testing.T) {
	for _, tt := range []struct{ step, want string }{
		{"key: a", "limits: missing; want at least one rule: name one"},
		{"key: a, rules: b", `rules: there is no rule "b"`},
		{"key: a, rules: a, ns: other", "ns: rule a counts in namespace default; leave ns out"},
		{"key: a, values: v", "rules: missing; name one, or give the namespace"},
		{"key: a, values: v, rules: a", "rules[0]: rule a has no distinct limits"},
		{"key: a, rules: a, hold: 25h, as: x", "hold: want at most 24h"},
		{"key: a, n: 2, rules: a, hold: 1s, as: x}, {settle: x, n: 1", "settle: x was refused"},
		{"key: a, rules: a, hold: 1s, as: x}, {at: 11m, settle: x, n: 1",
			"hold: it ended more than 10m ago"},
		{"key: a, n: 2, rules: a, hold: 1s, as: x}, {renew: x, for: 1s", "renew: x was refused"},
		{"key: a, rules: a, hold: 1s, as: x}, {at: 2s, renew: x, for: 1m", "hold: it has ended"},
		{"key: a, rules: a, hold: 1s, as: x}, {renew: x, for: 25h", "for: it would end"},
	} {
		step, want := tt.step, tt.want
		got := run(t, stepOf(step))
		if len(got.Failures) != 1 || !strings.Contains(got.Failures[0].String(), "+ error: "+want) {
			t.Errorf("%s: %v, want %s", step, got.Failures, want)
		}
	}
}

// TestNamespacesComeFromSettings has a quota of 30 days, which the settings cover.
func TestNamespacesComeFromSettings(t *testing.T) {
	dir := t.TempDir()
	settings, path := filepath.Join(dir, "twotier.yaml"), filepath.Join(dir, "f")
	must.Write(t, settings, "namespaces:\n  default: {ladder: [1m x 60, 1h x 744]}\n"+
		"  s: {shadow: true}\n")
	const rest = "rules:\n- {name: a, limits: 1/30d, default: true}\n" +
		"- {name: s, namespace: s, limits: 1/1h, default: true}\n" +
		"tests:\n- name: x\n  steps:\n" +
		"  - {key: k}\n  - {at: 29d, key: k, expect: refused}\n" +
		"  - {at: 30d, key: k, expect: allowed}\n" +
		"  - {ns: s, key: k, times: 2, expect: allowed}\n  - {ns: s, key: k, shadow: s}\n"
	for _, tt := range []struct{ text, settings string }{
		{"config: twotier.yaml\n" + rest, ""}, {rest, settings},
		{"config: none.yaml\n" + rest, settings},
	} {
		must.Write(t, path, tt.text)
		f, err := ruletest.Read(path, tt.settings)
		must.Succeed(t, err)
		got, err := f.Run(t.Context())
		must.Succeed(t, err)
		if len(got.Failures) > 0 {
			t.Errorf("%s%v", tt.text, got.Failures)
		}
	}
}
