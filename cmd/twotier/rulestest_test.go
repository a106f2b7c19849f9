package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// TestRulesTest runs the tests of files from a shell: as expected, with a difference, with a
// mistake, and not at all.
func TestRulesTest(t *testing.T) {
	const example = "../../deploy/rules/rules-test.yaml"
	status, out, errs := exec(t, nil, "rules", "test", example)
	if status != exitOK || errs != "" || out != example+": 3 tests, 11 steps, all as expected\n" {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tests.yaml")
	must.Write(t, filepath.Join(dir, "rules.yaml"), "rules:\n- {name: a, limits: [2/1m, 9/1h]}\n")
	const text = "rules: rules.yaml\ntests:\n- name: burst\n  steps:\n" +
		"  - {key: k, rules: a, times: 3, every: 1s, expect: allowed}\n" +
		"  - {at: 61s, key: k, rules: a, expect: allowed}\n"
	must.Write(t, path, text)
	status, out, errs = exec(t, nil, "rules", "test", path)
	if status != exitFailed || errs != "twotier rules: "+path+": 1 of 2 steps failed\n" ||
		out != path+":5:5: burst, at 2s: k under a, repetition 3\n  - allowed\n"+
			"  + refused, by a/1m, retry_after 58s\n    a/1m 2 of 2, a/1h 2 of 9\n" {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	status, out, _ = exec(t, nil, "rules", "test", path, "--json")
	var answer struct {
		Tests, Steps int
		Failures     []struct {
			At, Actual string
			Repetition int
		}
	}
	must.Succeed(t, json.Unmarshal([]byte(out), &answer))
	if status != exitFailed || answer.Tests != 1 || answer.Steps != 2 ||
		len(answer.Failures) != 1 || answer.Failures[0].At != path+":5:5" ||
		answer.Failures[0].Repetition != 3 {
		t.Errorf("status %d: %s", status, out)
	}
	must.Write(t, path, strings.Replace(text, "expect: allowed", "expect: fine", 1))
	status, out, errs = exec(t, nil, "rules", "test", path)
	if status != exitFailed || out != "" ||
		!strings.Contains(errs, path+":5:53: expect: \"fine\"") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if status, _, errs = exec(t, nil, "rules", "test"); status != exitUsage {
		t.Errorf("status %d: %s", status, errs)
	}
}
