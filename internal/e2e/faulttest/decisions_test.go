package faulttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// decided is a line of the stream of decisions.
type decided struct {
	Time, NS, Rule, Key, Verdict, Door, Node string
	N, RulesVersion                          int64
	Limits                                   []struct {
		Window     string
		Count, Max int64
	}
}

// readDecisions returns the lines of a file, or nothing if there is none.
func readDecisions(t *testing.T, path string) (all []decided) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var d decided
		if err := json.Unmarshal([]byte(strings.ReplaceAll(line, "rules_version",
			"rulesversion")), &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, d)
	}
	return all
}

const decidedRules = `rules:
- {name: few, namespace: sms, limits: [1/1m]}
- {name: fewer, namespace: sms, limits: [0/1h], state: shadow}
`

// TestDecisionsAreWritten asks a node through several listeners, and reads one line for each
// verdict. The file is renamed meanwhile, as logrotate does, and every line is in one of the two
// files.
func TestDecisionsAreWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "decisions.json")
	must.Write(t, rules, decidedRules)
	p := program.Serve(t, proctest.Options{}, "--rules", rules, "--decisions", path,
		"--decisions-sample", "refused=1,shadow_refused=1", "--resp", "127.0.0.1:0", "--node", "a")
	const acquire = `{"key":"k","rules":["few","fewer"]}`
	p.MustPost("/v1/acquire", acquire) // refused in shadow
	p.MustPost("/v1/acquire", acquire) // refused, also in shadow
	p.MustPost("/v1/acquire", acquire[:10]+`,"dry_run":true,"rules":["few"]}`)
	if code, _ := p.Get("/v1/forward-auth?rule=few"); code != 200 {
		t.Errorf("forward-auth: %d", code)
	}
	var first []decided
	proctest.Until(t, "three decisions are written", func() bool {
		first = readDecisions(t, path)
		return len(first) == 3
	})
	must.Succeed(t, os.Rename(path, path+".1"))
	p.HangUp()
	proctest.Until(t, "a new file", func() bool { _, err := os.Stat(path); return err == nil })
	client := redis.NewClient(&redis.Options{Addr: p.Resp, Protocol: 2})
	defer client.Close()
	must.Succeed(t, client.Do(t.Context(), "TT.ACQUIRE", "r", "N", "5", "LIMIT", "1m", "4").
		Err())
	if code := p.Stop(); code != 0 {
		t.Errorf("status %d", code)
	}
	all := slices.Concat(first, readDecisions(t, path))
	want := []string{
		"sms fewer k x1 shadow_refused http v1 [{1h 1 0}]",
		"sms few k x1 refused http v1 [{1m 1 1}]",
		"sms fewer k x1 shadow_refused http v1 [{1h 1 0}]",
		"default  r x5 refused resp v0 [{1m 0 4}]",
	}
	var got []string
	for _, d := range all {
		got = append(got, fmt.Sprintf("%s %s %s x%d %s %s v%d %v", d.NS, d.Rule, d.Key, d.N,
			d.Verdict, d.Door, d.RulesVersion, d.Limits))
		if d.Node != "a" || d.Time == "" {
			t.Errorf("%+v", d)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDecisionsNobodyReads writes decisions to a stdout that the test stops reading after the first
// line: once the pipe and the queue are full, decisions are dropped, and the node still decides and
// stops cleanly.
func TestDecisionsNobodyReads(t *testing.T) {
	t.Parallel()
	p := program.Serve(t, proctest.Options{}, "--decisions", "-")
	op := `{"op":"acquire","key":"` + strings.Repeat("k", 250) +
		`","limits":[{"window":"1m","max":9}]},`
	batch := `{"quiet":true,"ops":[` + strings.TrimSuffix(strings.Repeat(op, 2000), ",") + `]}`
	proctest.Until(t, "lines are dropped", func() bool {
		p.MustPost("/v1/batch", batch)
		return p.Metric("twotier_decisions_dropped_total", "") > 0
	})
	if code := p.Stop(); code != 0 {
		t.Errorf("status %d", code)
	}
	if !strings.Contains(p.Log.String(), "not everything was written") {
		t.Errorf("the log:\n%s", p.Log.String())
	}
}
