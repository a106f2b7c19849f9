package main

import (
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

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
	for _, args := range [][]string{{"rules", "check"}, {"rules", "check", c.rules, "b"},
		{"rules", "check", c.rules, "--fix", "--json"}} {
		if status, _, errs := exec(t, nil, args...); status != exitUsage {
			t.Errorf("%v: status %d: %s", args, status, errs)
		}
	}
}

// TestFixPrintsTheNamespacesThatRulesNeed checks rules with settings, puts the printed namespaces
// in place of the settings, and checks them again.
func TestFixPrintsTheNamespacesThatRulesNeed(t *testing.T) {
	const billing = "rules:\n- {name: a, namespace: billing, limits: [9/1m, 50/30d]}\n"
	const standard = "100ms x 100, 1s x 100, 10s x 60, 1m x 150, 15m x 100"
	for _, tt := range []struct{ rules, settings, want string }{
		{billing, "", "namespaces:\n  billing:\n    ladder: [" + standard + ", 1h x 744]\n"},
		// The rest of the settings is the server's, with its flags and variables.
		{billing, "gossip: 10.0.0.1:7946\nnamespaces:\n  other: {max-keys: 7}\n" +
			"  billing: {exact: 9, ladder: '1s x 60, 1m x 60'}\n",
			"namespaces:\n  billing:\n    ladder: [1s x 60, 1m x 60, 1h x 744]\n    exact: 9\n" +
				"  other:\n    max-keys: 7\n"},
		{billing + "- {name: b, limits: 5/month}\n", "",
			"namespaces:\n  default:\n    ladder: [" + standard + ", 1h x 768]\n"},
		{"domain: web\ndescriptors: [{key: k, rate_limit: {unit: week, requests_per_unit: 3}}]\n",
			"", "namespaces:\n  web:\n    ladder: [" + strings.Replace(standard, "15m x 100",
				"15m x 696", 1) + "]\n"},
		{"rules:\n- {name: a, limits: 5/day}\n", "namespaces: {default: {exact: 5}}\n", ""},
	} {
		c := checkRules(t, tt.rules, tt.settings)
		before, found, _ := c.run()
		status, out, errs := c.run("--fix")
		if status != exitOK || out != tt.want || errs != found {
			t.Errorf("%s%sstatus %d: %s%s", tt.rules, tt.settings, status, out, errs)
		}
		if (before == exitOK) != (out == "") {
			t.Errorf("%s%sstatus %d without --fix", tt.rules, tt.settings, before)
		}
		if out == "" {
			continue
		}
		if status, out, errs := checkRules(t, tt.rules, out).run(); status != exitOK {
			t.Errorf("fixed: status %d: %s%s", status, out, errs)
		}
		fixed := checkRules(t, tt.rules, out)
		status, _, errs = exec(t, nil, "serve", "--config", fixed.settings, "--rules", fixed.rules,
			"--print-config")
		if status != exitOK {
			t.Errorf("a server with the fixed settings: status %d: %s", status, errs)
		}
	}
	c := checkRules(t, "rules:\n- {name: a, limits: [5/30d, 6/9999d]}\n", "")
	status, out, errs := c.run("--fix")
	if status != exitFailed || !strings.Contains(out, "1h x 744") ||
		!strings.HasSuffix(errs, c.rules+": 1 mistake\n") {
		t.Errorf("a window that no ladder covers: status %d: %s%s", status, out, errs)
	}
}
