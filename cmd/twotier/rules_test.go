package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
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
