package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/warning"
)

// shell runs rules commands against one node.
type shell struct {
	t       *testing.T
	node    *served
	environ []string
	file    string // the file to apply
}

// rules runs twotier rules and fails the test unless it ends with that status and prints want.
func (s *shell) rules(status int, want string, args ...string) string {
	s.t.Helper()
	args = append(append([]string{"rules"}, args...), "--server", s.node.url)
	code, out, errs := exec(s.t, s.environ, args...)
	if code != status || !strings.Contains(out+errs, want) {
		s.t.Errorf("%v: status %d, want %d and %q\n%s%s", args, code, status, want, out, errs)
	}
	return out
}

// write replaces the file.
func (s *shell) write(text string) {
	s.t.Helper()
	must.Write(s.t, s.file, text)
}

// TestRulesFromAShell changes the rules of three nodes.
func TestRulesFromAShell(t *testing.T) {
	const token = "the token of this test"
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--admin-token", token)
	s := shell{t, nodes[0], []string{"TWOTIER_ADMIN_TOKEN=" + token},
		filepath.Join(t.TempDir(), "r.yaml")}
	everywhere := func(version int) {
		t.Helper()
		for _, n := range nodes {
			eventually(t, "the newest version", patience, func() bool {
				_, _, errs := exec(t, nil, "rules", "show", "--server", n.url)
				return errs == fmt.Sprintf("version %d\n", version)
			})
		}
	}
	s.rules(exitOK, "version 0\n", "show")
	s.write("rules: # for the test\n- {name: a, limits: [1/1m]}\n")
	s.rules(exitOK, "+- {name: a, limits: [1/1m]}\n", "diff", s.file)
	s.rules(exitOK, "version 1 is in force in place of 0\n", "apply", s.file)
	s.rules(exitOK, "version 1 is the same already\n", "apply", s.file)
	if out := s.rules(exitOK, "", "diff", s.file); out != "" {
		t.Errorf("a difference where there is none:\n%s", out)
	}
	everywhere(1)
	s.node = nodes[1]
	if out := s.rules(exitOK, "", "show"); out != "rules: # for the test\n- {name: a, "+
		"limits: [1/1m]}\n" {
		t.Errorf("shown:\n%s", out)
	}
	s.rules(exitOK, `{"rules":[{"name":"a","limits":["1/1m"]}]}`, "show", "--json")
	s.write("rules:\n- {name: a, limits: [2/1m], state: of}\n")
	s.rules(exitFailed, `rules:2:36: state: "of" is not one of`, "apply", s.file)
	s.write("rules:\n- {name: a, limits: [2/1m]}\n")
	s.rules(exitOK, `{"version":2,"who":"--admin-token",`, "apply", s.file, "--json")
	everywhere(2)
	s.node = nodes[2]
	s.write("rules: []\n")
	s.rules(exitFailed, "somebody else has changed the rules", "apply", s.file, "--version", "1")
	s.rules(exitOK, "version 3 is in force in place of 2\n", "rollback", "1")
	s.rules(exitFailed, "no such version is kept", "rollback", "9")
	everywhere(3)
	s.rules(exitOK, "# for the test", "show", "--version", "3")
	history := s.rules(exitOK, "VERSION  AT", "history")
	if lines := strings.Split(history, "\n"); len(lines) != 5 || !strings.HasPrefix(lines[1],
		"3        2") || !strings.Contains(lines[3], "--admin-token") {
		t.Errorf("history:\n%s", history)
	}
	for _, usage := range []string{"put", "apply", "rollback x", "show x", "history --x"} {
		s.rules(exitUsage, "usage: twotier rules", strings.Fields(usage)...)
	}
	s.environ = nil
	s.rules(exitFailed, "want the header Authorization", "apply", s.file)
}

// TestMistakeInAFileIsTakenBack makes a mistake in the file of rules, applies others, and takes the
// mistake back: the applied rules stay in force until the file really changes.
func TestMistakeInAFileIsTakenBack(t *testing.T) {
	const token = "the token of this test"
	file := filepath.Join(t.TempDir(), "rules.yaml")
	s := shell{t: t, environ: []string{"TWOTIER_ADMIN_TOKEN=" + token}, file: file}
	s.write("rules:\n- {name: a, limits: [1/1m]}\n")
	s.node = startServe(t, t.Context(), "--redis", redistest.Start(t).URL(), "--rules", file,
		"--admin-token", token)
	logged := func(what string) {
		t.Helper()
		eventually(t, what, patience, func() bool {
			return strings.Contains(s.node.errs.String(), what)
		})
	}
	s.write("rules:\n- {name: a, limits: [1/1m, 2]}\n")
	logged("can't be used")
	(&warned{t, s.node}).warns(warning.FileUnusable, "--rules")
	s.file = filepath.Join(t.TempDir(), "urgent.yaml")
	s.write("rules:\n- {name: urgent, limits: [1/1m]}\n")
	s.rules(exitOK, "version 2 is in force in place of 1\n", "apply", s.file)
	s.file = file
	s.write("rules:\n- {name: a, limits: [1/1m]}\n")
	logged("read again")
	if all := (&warned{t, s.node}).get("/v1/rules?warnings=true"); strings.Contains(all,
		string(warning.FileUnusable)) {
		t.Errorf("the file is right again: %s", all)
	}
	s.write("rules:\n- {name: b, limits: [1/1m]}\n")
	eventually(t, "the file as it is now", patience, func() bool {
		_, out, _ := exec(t, nil, "rules", "show", "--server", s.node.url)
		return strings.Contains(out, "name: b")
	})
	history := s.rules(exitOK, "VERSION  AT", "history")
	if lines := strings.Count(history, "\n"); lines != 4 {
		t.Errorf("want three versions, of which none is the file again:\n%s", history)
	}
}

// checked is a file of rules to check, and a file of settings.
type checked struct {
	t               *testing.T
	rules, settings string
}

// checkRules returns two files with these texts. Without text there are no settings.
func checkRules(t *testing.T, rules, settings string) checked {
	t.Helper()
	c := checked{t, filepath.Join(t.TempDir(), "rules.yaml"), ""}
	must.Write(t, c.rules, rules)
	if settings != "" {
		c.settings = filepath.Join(t.TempDir(), "twotier.yaml")
		must.Write(t, c.settings, settings)
	}
	return c
}

// run checks the rules and returns the outcome.
func (c checked) run(flags ...string) (status int, out, errs string) {
	c.t.Helper()
	args := append([]string{"rules", "check", c.rules}, flags...)
	if c.settings != "" {
		args = append(args, "--config", c.settings)
	}
	return exec(c.t, nil, args...)
}

// lines returns the lines of findings without the path and what follows the code.
func (c checked) lines(out string) string {
	var all []string
	for line := range strings.Lines(out) {
		line = strings.TrimPrefix(strings.TrimSpace(line), c.rules+":")
		all = append(all, strings.Join(strings.Fields(line)[:2], " "))
	}
	return strings.Join(all, ", ")
}

// TestEveryFindingIsALine has a document with mistakes, and one whose windows are too long and
// whose rules share counts.
func TestEveryFindingIsALine(t *testing.T) {
	for _, tt := range []struct {
		rules, want, reason string
		status              int
	}{
		{"rules:\n- {name: a, limits: 3/1mo}\n- {name: b, limits: [1/1m], state: of}\n",
			"2:21: limit:, 3:36: state:", "2 mistakes", exitFailed},
		{"rules:\n- {name: a, limits: [3/30d]}\n- {name: b, limits: 1/1m}\n",
			"2:22: a, 3:10: shared-counts:", "1 mistake", exitFailed},
		{"rules:\n- {name: a, limits: 3/1m}\n- {name: b, limits: 1/1m}\n",
			"3:10: shared-counts:, no mistakes,", "", exitOK},
		{"rules:\n- {name: a, limits: 3/1m}\n", "no mistakes,", "", exitOK},
		{"rules:\n- {name: a, limits: 3/1m, state: shadow}\n" +
			"- {name: b, limits: 3/1m, state: shadow, default: true}\n", "a is, no mistakes,", "",
			exitOK},
	} {
		c := checkRules(t, tt.rules, "")
		status, out, errs := c.run()
		if reason := "twotier rules: " + c.rules + ": " + tt.reason + "\n"; status != tt.status ||
			c.lines(out) != tt.want || tt.reason != "" && errs != reason ||
			tt.reason == "" && errs != "" {
			t.Errorf("%s: status %d: %s%s", tt.rules, status, out, errs)
		}
	}
	c := checkRules(t, "rules:\n- {name: a, limits: 3/1m}\n- {name: b, limits: 1/30d}\n", "")
	status, out, _ := c.run("--json")
	if status != exitFailed || !strings.Contains(out, `"mistakes":["`+c.rules+":3:21: a window of "+
		"720h") || !strings.Contains(out, `"code":"shared-counts"`) {
		t.Errorf("status %d: %s", status, out)
	}
	c = checkRules(t, "rules:\n- {name: a, limits: 3/1m, state: shadow}\n", "")
	if _, out, _ := c.run("--json"); !strings.Contains(out, `"notes":["a is in shadow: it judges `+
		`only requests that name it"]`) {
		t.Errorf("in shadow: %s", out)
	}
	for _, args := range [][]string{{"rules", "check"}, {"rules", "check", c.rules, "b"}} {
		if status, _, errs := exec(t, nil, args...); status != exitUsage {
			t.Errorf("%v: status %d: %s", args, status, errs)
		}
	}
}

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
