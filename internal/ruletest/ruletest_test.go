package ruletest_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/ruletest"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
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

// run runs the tests of a text and returns the result.
func run(t *testing.T, text string) *ruletest.Result {
	t.Helper()
	path := must.File(t, "f", text)
	f, err := ruletest.Read(path, "")
	must.Succeed(t, err)
	result, err := f.Run(t.Context())
	must.Succeed(t, err)
	return result
}

const every = `rules:
- {name: login, limits: [3/1m, 5/24h]}
- {name: strict, limits: 1/1m, state: shadow}
- {name: old, limits: 0/1m, state: off}
- {name: warned, namespace: w, limits: 10/1m, warn: 80%, default: true}
- {name: banning, namespace: b, limits: 1/10s, ban: 1h, default: true}
- {name: tokens, namespace: t, limits: 10/1m, charge: always}
- {name: devices, namespace: d, distinct: [2/24h], default: true, warn: 100%}
- {name: tried, namespace: d, distinct: [1/24h], default: true, state: shadow}
- {name: calls, namespace: c, limits: {concurrent: 1}, default: true}
- {name: quota, namespace: q, limits: 2/day@Europe/Lisbon, default: true}
tests:
`

// TestEveryExpectation has a test for each kind of request and each field of an answer. All of them
// are met; then each expectation is replaced by a wrong one, and exactly that step fails.
func TestEveryExpectation(t *testing.T) {
	for _, tt := range []struct {
		start string
		// steps come before the one with the expectation.
		steps              []string
		last, right, wrong string
		// Part of the report about wrong.
		report string
	}{
		{steps: []string{"key: a, rules: login, times: 3, every: 1s"},
			last:  "at: 10s, key: a, rules: login",
			right: "expect: refused, by: login, retry_after: 50s, counts: {login/1m: 3}",
			wrong: "expect: allowed",
			report: "at 10s: a under login\n  - allowed\n" +
				"  + refused, by login/1m, retry_after 50s\n" +
				"    login/1m 3 of 3, login/24h 3 of 5"},
		{last: "key: a, rules: strict, times: 3",
			right: "expect: allowed", wrong: "shadow: []",
			report: "a under strict, repetition 2\n  - shadow none\n"},
		{steps: []string{"key: a, rules: login, n: 3", "at: 1h, key: a, rules: login, n: 2"},
			last:  "at: 2h, key: a, rules: login",
			right: "by: [login/24h], retry_after: 22h", wrong: "by: login/1m",
			report: "- by login/1m\n  + refused, by login/24h, retry_after 22h"},
		{last: "key: a, n: 9, rules: login", right: "retry_after: never",
			wrong:  "retry_after: 1m",
			report: "+ refused, by login/1m and login/24h, retry_after never"},
		{steps: []string{"key: a, rules: [strict, login]"},
			last:  "key: a, rules: [strict, login]",
			right: "expect: allowed, shadow: strict, by: []", wrong: "shadow: []",
			report: "- shadow none\n  + allowed, shadow strict/1m\n"},
		{last: "key: a, rules: old", right: "expect: allowed", wrong: "expect: refused",
			report: "+ allowed"},
		{steps: []string{"ns: w, key: a, n: 7, near: []"}, last: "ns: w, key: a",
			right: "near: warned", wrong: "near: []",
			report: "- near none\n  + allowed, near warned/1m"},
		{steps: []string{"ns: b, key: a, times: 2", "at: 59m59s, ns: b, key: a, by: banning/ban"},
			last: "at: 1h, ns: b, key: a", right: "expect: allowed", wrong: "by: banning/ban",
			report: "- by banning/ban\n  + allowed, by none"},
		{steps: []string{"key: a, rules: tokens, n: 30, expect: refused"},
			last:  "key: a, rules: tokens, n: 0",
			right: "counts: {tokens: 30}, expect: refused", wrong: "counts: {tokens: 0}",
			report: "- count of tokens 0\n"},
		{steps: []string{"key: a, rules: login, n: 4, charge: true, expect: refused"},
			last: "key: a, rules: login", right: "counts: {login/24h: 4}, by: login/1m",
			wrong: "counts: {login/2h: 4}", report: "login/24h 4 of 5"},
		{steps: []string{"ns: d, key: a, values: [x, y], near: devices"},
			last:   "ns: d, key: a, values: z",
			right:  "by: devices, shadow: tried, counts: {devices: 2}, retry_after: 24h",
			wrong:  "by: []",
			report: "+ refused, by devices/24h, retry_after 24h, shadow tried/24h"},
		{steps: []string{"ns: c, key: a, hold: 90s, as: one"},
			last:  "ns: c, key: a, hold: 90s, as: two",
			right: "by: calls/concurrent, counts: {calls/concurrent: 1}", wrong: "expect: allowed",
			report: "calls/concurrent 1 of 1"},
		{steps: []string{"ns: c, key: a, hold: 90s, as: one", "at: 10s, settle: one, n: 0"},
			last:  "ns: c, key: a, hold: 90s, as: two",
			right: "expect: allowed", wrong: "by: calls/concurrent", report: "+ allowed, by none"},
		{steps: []string{"key: a, rules: login, hold: 1m, as: one"},
			last:  "at: 10s, settle: one, n: 4",
			right: "over: login/1m", wrong: "over: []",
			report: "settle one with 4\n  - over none\n  + over login/1m"},
		{steps: []string{"ns: c, key: a, hold: 10s, as: one", "at: 5s, renew: one, for: 1m"},
			last:  "at: 30s, ns: c, key: a, hold: 10s, as: two",
			right: "by: calls/concurrent", wrong: "expect: allowed",
			report: "- allowed\n  + refused, by calls/concurrent"},
		{steps: []string{"key: a, rules: login, n: 3, hold: 10s, on_expiry: release, as: one",
			"at: 9s, key: a, rules: login, by: login/1m"},
			last:  "at: 11s, key: a, rules: login",
			right: "expect: allowed, counts: {login/24h: 1}", wrong: "by: login/1m",
			report: "+ allowed, by none"},
		{steps: []string{"key: a, rules: login, n: 3, hold: 10s, on_expiry: keep, as: one"},
			last:  "at: 11s, key: a, rules: login",
			right: "by: login/1m", wrong: "expect: allowed", report: "+ refused, by login/1m"},
		{steps: []string{"key: a, rules: login, n: 3, hold: 10s, on_expiry: release, as: one",
			"at: 5s, settle: one, n: 2"},
			last:  "at: 11s, key: a, rules: login, n: 0",
			right: "counts: {login/24h: 2}", wrong: "counts: {login/24h: 0}",
			report: "login/24h 2 of 5"},
		{steps: []string{"key: a, rules: login, n: 3, hold: 10s, on_expiry: release, as: one",
			"at: 5s, renew: one, for: 1m", "at: 11s, key: a, rules: login, by: login/1m"},
			last:  "at: 66s, key: a, rules: login, n: 0",
			right: "counts: {login/24h: 0}", wrong: "counts: {login/24h: 3}",
			report: "login/24h 0 of 5"},
		{steps: []string{"key: a, rules: login, n: 3, hold: 1m, on_expiry: release, as: long",
			"key: b, rules: login, n: 3, hold: 10s, on_expiry: release, as: short"},
			last:  "at: 11s, checks: [{key: a, rules: login, n: 0}, {key: b, rules: login, n: 0}]",
			right: "counts: {'checks[0].login/24h': 3, 'checks[1].login/24h': 0}",
			wrong: "counts: {'checks[1].login/24h': 3}", report: "checks[1].login/24h 0 of 5"},
		{steps: []string{"key: a, rules: login, n: 3"},
			last:  "checks: [{key: b, rules: login}, {key: a, rules: login, n: 2}]",
			right: "by: login/1m, counts: {'checks[1].login/1m': 3, 'checks[0].login': 0}",
			wrong: "counts: {login/24h: 3}", report: "b under login, a n=2 under login\n"},
		{start: "2026-03-28T12:00:00Z", // the day of the 29th has 23 hours
			steps: []string{"ns: q, key: a, n: 2", "at: 2026-03-29T00:00:00Z, ns: q, key: a, n: 2"},
			last:  "at: 2026-03-29T22:59:59Z, ns: q, key: a",
			right: "retry_after: 1s, counts: {quota: 2}", wrong: "expect: allowed",
			report: "at 34h59m59s: a in q\n"},
	} {
		write := func(expected string) string {
			text := every + "- name: it\n"
			if tt.start != "" {
				text += "  start: " + tt.start + "\n"
			}
			text += "  steps:\n"
			for _, s := range append(tt.steps, tt.last+", "+expected) {
				text += "  - {" + s + "}\n"
			}
			return text
		}
		if got := run(t, write(tt.right)); len(got.Failures) > 0 || got.Steps != len(tt.steps)+1 {
			t.Errorf("%s, %s:\n%+v", tt.last, tt.right, got)
		}
		got := run(t, write(tt.wrong))
		line := strings.Count(write(""), "\n")
		if len(got.Failures) != 1 || !strings.Contains(got.Failures[0].String(), tt.report) ||
			!strings.Contains(got.Failures[0].At, fmt.Sprintf("f:%d:5", line)) {
			t.Errorf("%s, %s:\n%+v", tt.last, tt.wrong, got)
		}
	}
}

// TestDomainsOfEnvoy asks for descriptors.
func TestDomainsOfEnvoy(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, filepath.Join(dir, "rules.yaml"), `domain: web
descriptors:
- {key: ip, rate_limit: {unit: minute, requests_per_unit: 2, name: per-ip}}
- {key: path, value: /a, rate_limit: {unit: hour, requests_per_unit: 5}}
- {key: path, value: /b, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
`)
	path := filepath.Join(dir, "tests.yaml")
	must.Write(t, path, `rules: rules.yaml
tests:
- name: web
  steps:
  - {domain: web, descriptors: [{ip: 10.0.0.1}, {path: /a}], times: 2, expect: allowed}
  - {domain: web, descriptors: [{ip: 10.0.0.1}, {path: /a}], by: per-ip, counts: {path=/a: 2}}
  - {domain: web, descriptors: [{ip: 10.0.0.2}], n: 3, expect: refused}
  - {domain: web, descriptors: [{path: /b}], expect: allowed, shadow: path=/b/1h}
  - {domain: web, descriptors: [{path: /c}], expect: refused}
`)
	f, err := ruletest.Read(path, "")
	must.Succeed(t, err)
	got, err := f.Run(t.Context())
	must.Succeed(t, err)
	if len(got.Failures) != 1 || !strings.HasSuffix(got.Failures[0].At, ":9:5") ||
		!strings.Contains(got.Failures[0].String(),
			"domain web, path=/c\n  - refused\n  + allowed") {
		t.Errorf("%+v", got)
	}
}

// TestVerdictsAreThoseOfALog draws requests over weeks of virtual time, and expects the verdicts of
// an exact log.
func TestVerdictsAreThoseOfALog(t *testing.T) {
	first := seed.First()
	random := rand.New(rand.NewPCG(first, 0))
	type limit struct{ most, window int64 }
	limits := []limit{{3, 60_000}, {7, 3_600_000}, {12, 86_400_000}}
	text := "rules:\n- {name: r, limits: [3/1m, 7/1h, 12/24h], default: true}\n" +
		"tests:\n- name: drawn\n  steps:\n"
	logs, now := map[string][]int64{}, int64(0)
	refused := 0
	for range 3000 {
		now += []int64{0, random.Int64N(20_000), random.Int64N(7_200_000),
			random.Int64N(90_000_000)}[min(3, random.IntN(40)/12)]
		key, verdict := string(rune('a'+random.IntN(3))), "allowed"
		for _, l := range limits {
			n := int64(0)
			for _, at := range logs[key] {
				if at > now-l.window {
					n++
				}
			}
			if n >= l.most {
				verdict = "refused"
			}
		}
		if verdict == "allowed" {
			logs[key] = append(logs[key], now)
		} else {
			refused++
		}
		text += fmt.Sprintf("  - {at: %dms, key: %s, expect: %s}\n", now, key, verdict)
	}
	if got := run(t, text); len(got.Failures) > 0 {
		t.Errorf("seed %d: %d failures: %v", first, len(got.Failures), &got.Failures[0])
	}
	if refused < 100 {
		t.Errorf("only %d refusals", refused)
	}
}
