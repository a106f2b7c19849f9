package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		if g.Verdict != c.want {
			t.Errorf("%v: %s, want %s", c.values, g.Verdict, c.want)
		}
	}
	for _, g := range (&findings{}).judge() {
		if g.Verdict != "not measured" {
			t.Errorf("%s of nothing: %s", g.Goal, g.Verdict)
		}
	}
}

// The results that are kept are those that the report is made of.
func TestReportOfTheResults(t *testing.T) {
	const results = "../../results"
	kept, err := os.ReadFile(filepath.Join(results, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(results)); err != nil {
		t.Fatal(err)
	}
	if err := (&Report{}).Run(&bench{out: dir}); err != nil {
		t.Fatal(err)
	}
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
