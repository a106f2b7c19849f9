package main

import (
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"twotier.dev/twotier/internal/cli"
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
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
