package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
)

// Report makes one page from the results of the other commands: the pictures, and the goals with
// their measurements, their verdicts and their bounds. It measures nothing itself.
type Report struct{}

// findings holds the results that exist. Missing ones are empty.
type findings struct {
	compare, rules, nodes CompareResult
	messages              MessagesResult
	// control holds results by the names of commands.
	control map[string]*ControlResult
	resp    RespResult
	lines   map[string]Lines // by the names of the commands that run Go benchmarks
	// earlier are the goals with their previous measurements.
	earlier []Goal
	// Sources are the files of all results, in the order of the commands.
	Sources []Source
}

// Source is a file that was found.
type Source struct {
	Name, Command string
	Machine       Machine
}

func readFindings(dir string) (*findings, error) {
	f := &findings{lines: map[string]Lines{}, control: map[string]*ControlResult{}}
	results := map[string]any{"compare": &f.compare, "rules": &f.rules, "nodes": &f.nodes,
		"messages": &f.messages, "resp": &f.resp}
	errs := []error{f.readEarlier(dir)}
	for _, s := range steps() {
		var lines Lines
		switch s.command.(type) {
		case *Benchmarks:
			results[s.name] = &lines
		case *Control:
			f.control[s.name] = &ControlResult{}
			results[s.name] = f.control[s.name]
		}
		file := File{Result: results[s.name]}
		found, err := file.Read(dir, s.name)
		if found {
			f.Sources = append(f.Sources, Source{s.name, file.Command, file.Machine})
		}
		f.lines[s.name], errs = lines, append(errs, err)
	}
	return f, errors.Join(errs...)
}

// readEarlier reads before.json: the goals.json of an earlier run, kept by hand.
func (f *findings) readEarlier(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "before.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return cmp.Or(err, json.Unmarshal(raw, &f.earlier))
}

// Run writes report.md, goals.json and the pictures.
func (o *Report) Run(b *bench) error {
	f, err := readFindings(b.out)
	if err != nil {
		return err
	}
	page := struct {
		*findings
		Goals    []Goal
		Pictures []Picture
	}{f, f.judge(), f.pictures()}
	var text bytes.Buffer
	raw, err1 := json.MarshalIndent(page.Goals, "", "  ")
	err2 := templates().ExecuteTemplate(&text, "report.md", page)
	files := map[string][]byte{"goals.json": append(raw, '\n'), "report.md": text.Bytes()}
	for _, p := range page.Pictures {
		if files[p.Name+".svg"], err = p.svg(); err != nil {
			return err
		}
	}
	errs := []error{err1, err2}
	for name, content := range files {
		errs = append(errs, os.WriteFile(filepath.Join(b.out, name), content, 0o644))
	}
	log.Printf("%d goals and %d pictures in %s", len(page.Goals), len(page.Pictures), b.out)
	return errors.Join(errs...)
}

// Goal is one goal and its measurements.
type Goal struct {
	Goal string `json:"goal"`
	// Want is the figure. If Least is set, it is a minimum, otherwise a maximum.
	Want  float64 `json:"want"`
	Least bool    `json:"at_least"`
	// Readings are the measurements; the goal is met if all are good, and partly if some are.
	Readings []Reading `json:"readings"`
	Bound    string    `json:"bounded_by"`
	Verdict  string    `json:"verdict"`
}

// Reading is one figure and its subject.
type Reading struct {
	Of    string  `json:"of"`
	Value float64 `json:"value"`
	Good  bool    `json:"-"`
	// Before is the previous measurement, or 0.
	Before float64 `json:"-"`
}

// add adds a measurement. 0 means that there is none.
func (g *Goal) add(of string, value float64) {
	if value > 0 {
		g.note(of, value)
	}
}

func (g *Goal) note(of string, value float64) {
	g.Readings = append(g.Readings, Reading{Of: of, Value: value})
}

// judge compares the measurements with the goal, and finds the previous ones.
func (g *Goal) judge(earlier []Goal) {
	n := 0
	for i := range g.Readings {
		r := &g.Readings[i]
		if r.Good = r.Value == g.Want || r.Value > g.Want == g.Least; r.Good {
			n++
		}
		r.Before = before(earlier, g.Goal, r.Of)
	}
	switch {
	case len(g.Readings) == 0:
		g.Verdict = "not measured"
	case n == len(g.Readings):
		g.Verdict = "met"
	case n == 0:
		g.Verdict = "missed"
	default:
		g.Verdict = fmt.Sprintf("partly: %d of %d", n, len(g.Readings))
	}
}

// Figure returns the value, and the previous one.
func (r Reading) Figure() string {
	if r.Before == 0 {
		return digits(r.Value)
	}
	return digits(r.Value) + ", before " + digits(r.Before)
}

// digits formats a value with its meaningful digits.
func digits(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// judge judges all measurements.
func (f *findings) judge() []Goal {
	all := slices.Concat(f.httpGoals(), f.compareGoals(), f.memoryGoals(), f.growthGoals(),
		f.messageGoals(), f.lossGoals(), f.clusterGoals(), f.endpointGoals())
	for i := range all {
		all[i].judge(f.earlier)
	}
	return all
}

// before returns the previous measurement for a goal, or 0.
func before(earlier []Goal, goal, of string) float64 {
	for _, g := range earlier {
		for _, r := range g.Readings {
			if g.Goal == goal && r.Of == of {
				return r.Value
			}
		}
	}
	return 0
}
