package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/version"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// exec runs a command line and returns its exit status and output.
func exec(t *testing.T, environ []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	status = run(t.Context(), args, environ, &out, &err)
	return status, out.String(), err.String()
}

func TestHelp(t *testing.T) {
	names := []string{""}
	for _, c := range newRoot(cli.IO{}).Commands() {
		names = append(names, c.Name())
	}
	for _, name := range names {
		args := strings.Fields("help " + name)
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			status, out, stderr := exec(t, nil, args...)
			if status != exitOK || stderr != "" {
				t.Fatalf("status %d, stderr %s", status, stderr)
			}
			compare(t, strings.Join(args, "-"), out)
			for _, ask := range []string{"--help", "-h"} {
				if status, same, stderr := exec(t, nil,
					append(args[1:], ask)...); status != exitOK || stderr != "" || same != out {
					t.Errorf("%s %s: status %d, stderr %s, output %s", name, ask, status,
						stderr, same)
				}
			}
		})
	}
}

// compare compares text with a golden file; go test -update writes it.
func compare(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	must.Succeed(t, err)
	if text != string(want) {
		t.Errorf("help has changed; if that is meant, run go test -update. Now it is\n%s", text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("line of %d characters: %s", n, line)
		}
	}
}

func TestExitStatus(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/acquire":
			_,
				_ = w.Write(
				[]byte(`{"allowed":false,"limits":[],"retry_after_ms":1000,"source":"memory"}`))
		case "/v1/add":
			_, _ = w.Write([]byte(`{"key":"a","counts":[],"over":false,"source":"memory"}`))
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"title":"Request refused","detail":"key: too long"}`))
		}
	}))
	defer web.Close()
	tests := []struct {
		args           string
		status         int
		stdout, stderr string // parts of them; empty means no output
	}{
		{"", exitUsage, "", "usage: twotier COMMAND"},
		{"help", exitOK, "usage: twotier COMMAND", ""},
		{"--help", exitOK, "usage: twotier COMMAND", ""},
		{"help --help", exitOK, "usage: twotier help", ""},
		{"help nothing", exitUsage, "", `there is no command "nothing"`},
		{"help acquir", exitUsage, "", "did you mean acquire?"},
		{"version", exitOK, "twotier " + version.String() + " go", ""},
		{"--version", exitOK, "twotier " + version.String() + " go", ""},
		{"version 2", exitUsage, "", `unexpected argument "2"`},
		{"conut a", exitUsage, "", `there is no command "conut"; did you mean count?`},
		{"clus", exitUsage, "", "did you mean cluster?"},
		{"--server x", exitUsage, "",
			"unknown flag --server\nusage: twotier COMMAND [flags], twotier help lists"},
		{"add a", exitOK, "added 1 to a (memory)\n", ""},
		{"acquire a --limit 1/1m", exitRefused, "refused, try again in 1s (memory)\n", ""},
		{"count a", exitFailed, "", "twotier count: key: too long\n"},
		{"count", exitUsage, "", "twotier count: the KEY is missing\nusage: twotier count KEY"},
		{"serve --print-config", exitOK, "flush-interval: 200ms # default", ""},
		{"serve --listen x", exitUsage, "", "twotier serve: --listen: \"x\" is not HOST:PORT"},
		{"demo --for soon", exitUsage, "", "twotier demo: --for: "},
		{"demo --rate 0", exitUsage, "",
			"--rate: 0 is not a number from 1 to 10000\nusage: twotier demo"},
		{"demo now", exitUsage, "", `unexpected argument "now"`},
		{"serve --speed", exitUsage, "", "unknown flag --speed\nusage: twotier serve"},
		{"serve --lisen :1", exitUsage, "",
			"unknown flag --lisen\nusage: twotier serve"},
		{"serve now", exitUsage, "", `unexpected argument "now"; settings are flags, such as`},
		{"serve --node", exitUsage, "", "twotier serve: no value for --node\n"},
		{"__complete serve --mode r", exitOK, "redis\n:4\n", "ShellCompDirectiveNoFileComp"},
		{"serve --join a:1", exitUsage, "",
			"--join: needs --gossip, such as --gossip 127.0.0.1:7946\n"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			status, stdout, stderr := exec(t, []string{"TWOTIER_SERVER=" + web.URL},
				strings.Fields(test.args)...)
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			for _, s := range []struct{ name, got, want string }{{"stdout", stdout, test.stdout},
				{"stderr", stderr, test.stderr}} {
				if s.want == "" && s.got != "" || !strings.Contains(s.got, s.want) {
					t.Errorf("%s %q, want %q", s.name, s.got, s.want)
				}
			}
		})
	}
}

// TestAddressTaken checks that the error names the flag to change.
func TestAddressTaken(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	taken := l.Addr().String()
	for flag, args := range map[string][]string{
		"--listen": {"serve", "--listen", taken},
		"--gossip": {"serve", "--listen", "127.0.0.1:0", "--redis", "redis://127.0.0.1:1",
			"--hash-seed", "1", "--gossip", taken},
	} {
		status, stdout, stderr := exec(t, nil, args...)
		want := "twotier serve: " + flag + ": " + taken + " is taken by another process; "
		if status != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("status %d, stdout %q, stderr\n%s\nwant %s", status, stdout, stderr, want)
		}
	}
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	environ := []string{"TWOTIER_REDIS=redis://me:hunter2@h:1"}
	for _, args := range []string{"serve --print-config", "serve --listen x",
		"serve --redis http://me:hunter2@h"} {
		if _, stdout, stderr := exec(t, environ,
			strings.Fields(args)...); strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("%s: %s%s", args, stdout, stderr)
		}
	}
}

func TestSecondSignalLeavesAtOnce(t *testing.T) {
	signals := make(chan os.Signal, 2)
	canceled := 0
	var stderr strings.Builder
	signals <- syscall.SIGTERM
	signals <- syscall.SIGINT
	watchSignals(signals, func() { canceled++ }, func(s os.Signal) {
		reportLeaving(s, nil, &stderr)
	})
	if canceled != 1 ||
		!strings.Contains(stderr.String(), "interrupt again") {
		t.Errorf("canceled %d times, stderr %q", canceled, stderr.String())
	}
}

// settingRow matches the row of a setting on the page, up to its default.
var settingRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)[^`]*` \\| ([^|]*) \\|")

// others is the heading of the settings on the page that this test writes.
const others = "## All others\n\n| setting | default | meaning |\n|---|---|---|\n"

// TestConfigurationPage compares docs/configuration.md with the flags of twotier serve: the twelve
// settings at its top have the right defaults, and a table has all others as the help does. With
// -update it writes that table.
func TestConfigurationPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "configuration.md")
	page := must.Read(t, path)
	top, rest, ok := strings.Cut(page, others)
	if !ok {
		t.Fatalf("the page has no %s", others)
	}
	shown := map[string]string{}
	for _, m := range settingRow.FindAllStringSubmatch(top, -1) {
		shown[m[1]] = m[2]
	}
	if len(shown) != 12 {
		t.Errorf("the page begins with %d settings, want 12", len(shown))
	}
	serve, _, err := newRoot(cli.IO{}).Find([]string{"serve"})
	must.Succeed(t, err)
	var rows strings.Builder
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		def := ""
		if f.DefValue != "" {
			def = "`" + f.DefValue + "`"
		}
		if on, isShown := shown[f.Name]; isShown {
			if on != def {
				t.Errorf("--%s: the page has the default %s, want %s", f.Name, on, def)
			}
			delete(shown, f.Name)
		} else if f.Name != "help" {
			rows.WriteString(rowOf(f, def))
		}
	})
	for name := range shown {
		t.Errorf("--%s is no setting", name)
	}
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(top+others+rows.String()), 0o644))
	} else if rest != rows.String() {
		t.Errorf("the table of all others is outdated; run go test -update. Now it is\n%s", &rows)
	}
}

// rowOf returns the row of a flag with a default.
func rowOf(f *pflag.Flag, def string) string {
	arg, usage := pflag.UnquoteUsage(f)
	usage = strings.Join(strings.Fields(usage), " ")
	name := strings.TrimSpace("--" + f.Name + " " + arg)
	return "| `" + name + "` | " + def + " | " + strings.ReplaceAll(usage, "|", "\\|") + " |\n"
}

// TestAllStopAtOnce stops all nodes of a cluster at the same time, like a supervisor that gives
// them some seconds. No node waits for another to take over, and every count is in Redis.
func TestAllStopAtOnce(t *testing.T) {
	redis := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	nodes := startThree(t, ctx, "--redis", redis.URL(), "--flush-interval", "1m", "--max-lag", "0")
	const keys = 60
	for k := range keys {
		fetch(t, "POST", nodes[k%3].url+"/v1/add", fmt.Sprintf(`{"key":"k%d","n":%d}`, k, k+1))
	}
	stop()
	for _, n := range nodes {
		if errs := n.wait(t); strings.Contains(errs, "not everything could be handed over") {
			t.Errorf("it waited in vain:\n%s", errs)
		}
	}
	again := startServe(t, t.Context(), "--redis", redis.URL())
	for k := range keys {
		if got := fetch(t, "GET", fmt.Sprintf("%s/v1/count?key=k%d&window=24h", again.url, k),
			""); !strings.Contains(got, fmt.Sprintf(`"count":%d,`, k+1)) {
			t.Errorf("%s, want %d", got, k+1)
		}
	}
}

// served is a running serve command.
type served struct {
	url, gossip string
	out, errs   output
	status      chan int
}

// wait waits until the command has ended without an error, and returns its log.
func (s *served) wait(t *testing.T) string {
	t.Helper()
	if code := <-s.status; code != exitOK {
		t.Errorf("serve ended with status %d:\n%s", code, s.errs.String())
	}
	s.status <- exitOK
	return s.errs.String()
}

// startServe runs serve until ctx is done or the test ends.
func startServe(t *testing.T, ctx context.Context, args ...string) *served {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	s := &served{status: make(chan int, 1)}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0"}, args...)
	go func() { s.status <- run(ctx, args, nil, &s.out, &s.errs) }()
	t.Cleanup(func() { stop(); s.wait(t) })
	eventually(t, "ready", patience, func() bool {
		return strings.Contains(s.out.String(), "\n")
	})
	var ready struct{ Listen, Gossip string }
	decode(t, s.out.String(), &ready)
	s.url, s.gossip = "http://"+ready.Listen, ready.Gossip
	return s
}

// startThree starts a cluster of three.
func startThree(t *testing.T, ctx context.Context, args ...string) (nodes []*served) {
	t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		own := append([]string{"--node", id}, args...)
		if len(nodes) > 0 {
			own = append(own, "--join", nodes[0].gossip)
		}
		nodes = append(nodes, startServe(t, ctx, own...))
	}
	for _, n := range nodes {
		eventually(t, "three members", patience, func() bool {
			return strings.Count(fetch(t, "GET", n.url+"/v1/cluster", ""), `"state":"alive"`) == 3
		})
	}
	return nodes
}

// TestPrintedCommandWorks pastes the line that serve prints into a shell: without tokens, with
// tokens, and with tokens and an admin token. It names the variable of the token, and no secret.
func TestPrintedCommandWorks(t *testing.T) {
	if _, err := osexec.LookPath("curl"); err != nil {
		t.Skip("there is no curl on this machine")
	}
	line, token, err := newToken([]string{"me"}, "count", "*")
	must.Succeed(t, err)
	tokens := must.File(t, "tokens.conf", line)
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
