package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/testing/must"
)

// TestMirrorMistakes checks that each mistake on the command line names the flag and the remedy.
func TestMirrorMistakes(t *testing.T) {
	mapping := must.File(t, "mapping.yaml", "calls: [{command: CL.THROTTLE}]\n")
	for args, want := range map[string]string{
		"x":                             `unexpected argument "x"`,
		"--interval 0s":                 "--interval: 0s is not more than 0",
		"--max-waiting 0":               "--max-waiting: 0 is not a number from 1 on",
		"--limit 5/1q":                  "1q",
		"--limit 5/1us":                 "--limit: window: \"1us\"",
		"--server http://127.0.0.1/api": "--server: http://127.0.0.1/api has a path",
		"--redis redis://h":             "--redis and --mapping: give both or neither",
		"--mapping f":                   "--redis and --mapping: give both or neither",
		"--redis redis+cluster://h --mapping " + mapping: "--redis: want one server",
		"--redis redis://:pw@h --mapping " + mapping:     "--redis: want neither a password",
		"--redis redis://h/3 --mapping " + mapping:       "--redis: want neither a password",
		"--redis h --mapping " + mapping:                 "--redis: ",
	} {
		_, err := exec(t, nil, append([]string{"mirror", "--listen", "127.0.0.1:0"},
			strings.Fields(args)...)...)
		if _, ok := errors.AsType[*cli.UsageError](err); !ok ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a mistake with %q", args, err, want)
		}
	}
	for args, want := range map[string]string{
		"--listen 256.0.0.1:0":                                    "--listen: ",
		"--redis redis://h --mapping none.yaml":                   "--mapping: open none.yaml",
		"--listen-redis x --redis redis://h --mapping " + mapping: "--listen-redis: ",
	} {
		if _, err := exec(t, nil, append([]string{"mirror", "--listen", "127.0.0.1:0"},
			strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestMirrorPresentsItsToken runs a mirror of a server that grants nothing: the token arrives, the
// refusal is the last error of the report, and the end of the context ends the command well.
func TestMirrorPresentsItsToken(t *testing.T) {
	var mu sync.Mutex
	tokens := map[string]bool{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens[r.Header.Get("Authorization")] = true
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"title":"Forbidden","status":403,"detail":"no such role"}`)
	}))
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := execute(ctx, cli.IO{Environ: []string{"TWOTIER_TOKEN=secret"}, Stdout: w,
			Stderr: io.Discard}, []string{"mirror", "--server", web.URL, "--listen",
			"127.0.0.1:0", "--json"})
		w.Close()
		ended <- err
	}()
	lines := bufio.NewReader(r)
	var ready struct{ Listen string }
	decodeLine(t, lines, &ready)
	res, err := http.Post("http://"+ready.Listen, "application/json",
		strings.NewReader(`{"key":"ann","allowed":true}`))
	must.Succeed(t, err)
	res.Body.Close()
	cancel()
	var report mirror.Report
	decodeLine(t, lines, &report)
	if err := <-ended; err != nil || report.Errors != 1 ||
		!strings.Contains(report.LastError, "no such role") {
		t.Errorf("%v, %s", err, &report)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(tokens) != 1 || !tokens["Bearer secret"] {
		t.Errorf("want the token: %v", tokens)
	}
}

func decodeLine(t *testing.T, lines *bufio.Reader, into any) {
	t.Helper()
	line, err := lines.ReadBytes('\n')
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(line, into))
}
