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

// run runs the tests of a text and returns the result.
func run(t *testing.T, text string) *ruletest.Result {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	must.Write(t, path, text)
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
