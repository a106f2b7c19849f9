package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

func TestVerdict(t *testing.T) {
	atLeast, atMost := Goal{Want: 10, Least: true}, Goal{Want: 2}
	for _, c := range []struct {
		goal   Goal
		values []float64
		want   string
	}{
		{atLeast, []float64{10, 11}, "met"}, {atLeast, []float64{9, 11}, "partly: 1 of 2"},
		{atLeast, []float64{9.9}, "missed"}, {atMost, []float64{2, 1}, "met"}, {atMost,
			[]float64{2.1}, "missed"},
	} {
		g := c.goal
		for _, v := range c.values {
			g.add("", v)
		}
		if g.judge(nil); g.Verdict != c.want {
			t.Errorf("%v: %s, want %s", c.values, g.Verdict, c.want)
		}
	}
	for _, g := range (&findings{}).judge() {
		if g.Verdict != "not measured" {
			t.Errorf("%s of nothing: %s", g.Goal, g.Verdict)
		}
	}
}

var update = flag.Bool("update", false, "render the pages of results again")

// TestPagesOfTheResults checks that every page in results matches its command's template and the
// JSON next to it, and that the command that it names still exists.
func TestPagesOfTheResults(t *testing.T) {
	for _, s := range steps() {
		switch s.command.(type) {
		case *Benchmarks:
			checkPage(t, s.name, &Lines{})
		case *Compare:
			checkPage(t, s.name, &CompareResult{})
		case *Decisions:
			checkPage(t, s.name, &DecisionsResult{})
		case *Accuracy:
			checkPage(t, s.name, &AccuracyResult{})
		case *Messages:
			checkPage(t, s.name, &MessagesResult{})
		case *Control:
			checkPage(t, s.name, &ControlResult{})
		case *Resp:
			checkPage(t, s.name, &RespResult{})
		}
	}
}

func checkPage(t *testing.T, name string, result any) {
	const results = "../../results"
	f := File{Result: result}
	found, err := f.Read(results, name)
	must.Succeed(t, err)
	if !found {
		t.Logf("%s: there is no result yet", name)
		return
	}
	args := strings.Fields(strings.ReplaceAll(f.Command, "'", ""))[3:]
	k, err := parse(t.Context(), &cli{}, args)
	if err != nil || args[0] != name {
		t.Fatalf("%s names %q, %v", name, f.Command, err)
	}
	if line := commandLine(k); line != f.Command {
		t.Errorf("%s names\n%s\nwhich with all options is\n%s", name, f.Command, line)
	}
	f.Options = k.Selected().Target.Addr().Interface()
	want, err := f.Page(name, templates())
	if *update && err == nil {
		err = os.WriteFile(filepath.Join(results, name+".md"), want, 0o644)
	}
	page, err2 := os.ReadFile(filepath.Join(results, name+".md"))
	if err := errors.Join(err, err2); err != nil || !bytes.Equal(page, want) {
		t.Errorf("results/%s.md is not what results/%[1]s.json makes, %v", name, err)
	}
}

// TestReportOfTheResults checks that the kept report matches the kept results.
func TestReportOfTheResults(t *testing.T) {
	const results = "../../results"
	kept, err := os.ReadFile(filepath.Join(results, "report.md"))
	must.Succeed(t, err)
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(dir, os.DirFS(results)))
	must.Succeed(t, (&Report{}).Run(&bench{out: dir}))
	made, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil || string(made) != string(kept) {
		t.Errorf("results/report.md is not what bench report makes of the results beside it, %v",
			err)
	}
	for name := range strings.SplitSeq("throughput-zipf redis-commands latency-zipf "+
		"flush-interval growth-keys growth-rules", " ") {
		if svg, err := os.ReadFile(filepath.Join(dir, name+".svg")); err != nil ||
			!strings.Contains(string(svg), "</svg>") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
