package main

import (
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// TestPrintedCommandWorks pastes the line that serve prints into a shell: without tokens, with
// tokens, and with tokens and an admin token. It names the variable of the token, and no secret.
func TestPrintedCommandWorks(t *testing.T) {
	if _, err := osexec.LookPath("curl"); err != nil {
		t.Skip("there is no curl on this machine")
	}
	line, token, err := newToken([]string{"me"}, "count", "*")
	must.Succeed(t, err)
	tokens := filepath.Join(t.TempDir(), "tokens.conf")
	must.Write(t, tokens, line)
	const admin = "an-admin-token-of-a-test"
	for _, test := range []struct {
		args, environ []string
		want          string
	}{
		{nil, nil, `{"allowed":true`},
		{[]string{"--admin-token", admin}, nil, `{"allowed":true`},
		{[]string{"--tokens", tokens}, []string{"TWOTIER_TOKEN=" + token}, `{"allowed":true`},
		{[]string{"--tokens", tokens}, nil, `"status":401`},
		{[]string{"--tokens", tokens, "--admin-token", admin},
			[]string{"TWOTIER_TOKEN=" + admin}, `{"allowed":true`},
	} {
		s := startServe(t, t.Context(), append(test.args, "--gossip", "")...)
		var printed string
		eventually(t, "a line to try", patience, func() (found bool) {
			_, rest, _ := strings.Cut(s.errs.String(), "\ntry: ")
			printed, _, found = strings.Cut(rest, "\n")
			return found
		})
		cmd := osexec.CommandContext(t.Context(), "sh", "-c", printed)
		cmd.Env = append(cmd.Environ(), "TWOTIER_TOKEN=", "no_proxy=*")
		cmd.Env = append(cmd.Env, test.environ...)
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), test.want) {
			t.Errorf("%q: %s printed %s, %v; want %s", test.args, printed, out, err, test.want)
		}
		errs := s.errs.String()
		if strings.Contains(errs, token) || strings.Contains(errs, admin) {
			t.Errorf("%q: a secret was printed:\n%s", test.args, errs)
		}
		if named := strings.Contains(errs, "a token of "+tokens); named != (len(test.args) > 0 &&
			test.args[0] == "--tokens") {
			t.Errorf("%q: the file of the tokens:\n%s", test.args, errs)
		}
	}
}
