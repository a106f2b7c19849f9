package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/imports"
	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/testing/must"
)

func TestWrongUsageOfImport(t *testing.T) {
	const from = "import --from redis://127.0.0.1:1 "
	for _, test := range []struct{ args, want string }{
		{"import", "--from: want the URL"},
		{from + "--burst 1", "--pattern: want a pattern"},
		{from + "--pattern {key", `--pattern: "{key": want a name in braces`},
		{from + "--pattern rl:{key} x", `unexpected argument "x"`},
		{from + "--pattern rl:{key} --format sets", `--format: "sets" is not one of auto, zset`},
		{from + "--pattern rl:{key} --unit h", `--unit: "h" is not one of auto, s`},
		{from + "--pattern rl:{key} --as {user}", "--as: {user} is not in --pattern"},
		{from + "--pattern rl:*", "--as: {key} is not in --pattern"},
		{from + "--pattern rl:{key} --format fixed", "--window: want the length"},
		{from + "--pattern rl:{key} --format weighted", "--window: want the length"},
		{from + "--pattern rl:{key} --member {id}", "--member: "},
		{from + "--pattern rl:{key} --member {n", "--member: "},
		{from + "--pattern rl:{key} --member {n} --format list", "--member: only a zset"},
		{from + "--pattern rl:{key}:{index}", "--width: want the width"},
		{from + "--pattern rl:{key} --format redis-cell", "--limit: want the rate"},
		{from + "--pattern rl:{key} --format redis_rate --limit 9/1m --burst -1", "--burst: want"},
		{from + "--pattern rl:{key} --rate -1", "--rate: -1 is not a number"},
		{from + "--pattern rl:{key} --until noon", `--until: "noon" is neither`},
		{from + "--pattern rl:{key} --ack tape", "--ack: "},
		{"import --from http://x --pattern rl:{key}", "--from: redis URL"},
	} {
		isWrong(t, test.args, test.want)
	}
}

// TestImportWithoutTwotier: nothing is read from Redis if twotier does not answer.
func TestImportWithoutTwotier(t *testing.T) {
	_, err := exec(t, []string{"TWOTIER_SERVER=127.0.0.1:1"}, "import", "--from",
		"redis://127.0.0.1:1", "--pattern", "rl:{key}")
	if err == nil || !strings.Contains(err.Error(), "no server at") {
		t.Errorf("%v", err)
	}
}

func TestProgressBar(t *testing.T) {
	r := &imports.Report{Keys: 120, Events: 1}
	for _, test := range []struct {
		seen, size int64
		want       string
	}{
		{0, 1000, strings.Repeat("░", 30) + "   0%  120 keys, 1 event"},
		{500, 1000, strings.Repeat("█", 15) + strings.Repeat("░", 15) + "  50%"},
		{1500, 1000, strings.Repeat("█", 30) + " 100%"},
		{0, 0, strings.Repeat("█", 30) + " 100%"},
	} {
		if got := cli.DrawBar(r, test.seen, test.size); !strings.HasPrefix(got, test.want) {
			t.Errorf("%d of %d: %s", test.seen, test.size, got)
		}
	}
}

// TestImportReport describes the events that an import has left out.
func TestImportReport(t *testing.T) {
	r := &imports.Report{Keys: 3, Counted: 7, TooOld: 1, Meanwhile: 5, Later: 2, Ahead: 3,
		Unreadable: 4, Example: `"k": field "x"`,
		Oldest: 1_700_000_000_000, Newest: 1_700_000_000_001,
		FailedKeys: 2, Failed: []imports.KeyError{{Key: "a\n", Error: "is a list"}},
		First:  &imports.Sample{From: "limit:ann:24h", Key: "ann", Events: 5},
		SpanMS: (25 * time.Hour).Milliseconds(), Formats: map[imports.Format]int64{imports.Hash: 1}}
	const want = `would count 7 events of 3 keys
for example limit:ann:24h -> ann in default: 5 events
times 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:20.001Z
left out 5 events counted meanwhile by another import, or before an answer got lost
left out 1 event older than the namespace reaches back, 25h
left out 2 events after --until
left out 3 events ahead of the server's clock: repeat the import to add them
left out 4 elements that are no events, such as in "k": field "x"
lost: the times within a window: its events count from its start, so they leave when ` +
		`the limiter would have forgotten them; fixed windows include refused requests
not imported: "a\n": is a list
not imported: 1 key more
warning: mind the gap
nothing was written
`
	if got := cli.DescribeImport(r, true, "mind the gap"); got != want {
		t.Errorf("%s", got)
	}
	if got := cli.DescribeImport(r, false); strings.Contains(got, "for example") {
		t.Errorf("only a dry run shows an example: %s", got)
	}
}

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
		isWrong(t, "mirror --listen 127.0.0.1:0 "+args, want)
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
