package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"twotier/bench/findings"
	"twotier/bench/report"
)

// Goal is one thing that was wanted.
type Goal struct {
	Goal string `json:"goal"`
	// Want is the figure, and Least whether it is one to be reached rather than kept below.
	Want  float64 `json:"want"`
	Least bool    `json:"at_least"`
	// Readings are what was measured; the goal is met if all are as wanted, and partly if some are.
	Readings []Reading `json:"readings"`
	Bound    string    `json:"bounded_by"`
}

// Reading is one figure with what it is of.
type Reading struct {
	Of    string  `json:"of"`
	Value float64 `json:"value"`
}

func (g Goal) good(r Reading) bool {
	if g.Least {
		return r.Value >= g.Want
	}
	return r.Value <= g.Want
}

// Verdict is met, partly, missed or not measured.
func (g Goal) Verdict() string {
	n := 0
	for _, r := range g.Readings {
		if g.good(r) {
			n++
		}
	}
	switch {
	case len(g.Readings) == 0:
		return "not measured"
	case n == len(g.Readings):
		return "met"
	case n == 0:
		return "missed"
	}
	return fmt.Sprintf("partly: %d of %d", n, len(g.Readings))
}

func (g *Goal) add(of string, value float64) {
	if value > 0 {
		g.Readings = append(g.Readings, Reading{of, value})
	}
}

func goalTable(goals []Goal) string {
	var rows [][]string
	for _, g := range goals {
		var readings []string
		for _, r := range g.Readings {
			text := fmt.Sprintf("%s: %s", r.Of, figure(r.Value))
			if g.good(r) {
				text = "**" + text + "**"
			}
			readings = append(readings, text)
		}
		rows = append(rows, []string{g.Goal, strings.Join(readings, "<br>"), g.Verdict(), g.Bound})
	}
	return report.Table([]string{"goal", "measured", "verdict", "what bounds it"}, rows)
}

func figure(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func writeJSON(dir string, goals []Goal) error {
	type judged struct {
		Goal
		Verdict string `json:"verdict"`
	}
	var all []judged
	for _, g := range goals {
		all = append(all, judged{g, g.Verdict()})
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("goals: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "goals.json"), append(raw, '\n'), 0o644)
}

// judge judges everything that was measured.
func judge(a findings.All) []Goal {
	return slices.Concat(httpGoals(a), compareGoals(a), memoryGoals(a), growthGoals(a), messageGoals(a), lossGoals(a))
}
