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
// what was measured, whether each is met, and what bounds it. It measures nothing itself.
type Report struct{}

// findings holds the results that exist. Missing ones are empty.
type findings struct {
	compare, rules, nodes                CompareResult
	interval, growth, http, memory, loss Lines
	hot, forward, quietflush, envoy      Lines
	messages                             MessagesResult
	resp                                 RespResult
	// earlier are the goals as they were measured last time.
	earlier []Goal
	// Sources are the files of all, in the order above.
	Sources []Source
}

// Source is a file that was found.
type Source struct {
	Name, Command string
	Machine       Machine
}

func readFindings(dir string) (*findings, error) {
	f := &findings{}
	return f, errors.Join(
		read(f, dir, "compare", &f.compare), read(f, dir, "rules", &f.rules),
		read(f, dir, "interval", &f.interval), read(f, dir, "growth", &f.growth),
		read(f, dir, "http", &f.http), read(f, dir, "memory", &f.memory),
		read(f, dir, "messages", &f.messages), read(f, dir, "loss", &f.loss),
		read(f, dir, "nodes", &f.nodes), read(f, dir, "hot", &f.hot),
		read(f, dir, "forward", &f.forward), read(f, dir, "quietflush", &f.quietflush),
		read(f, dir, "resp", &f.resp), read(f, dir, "envoy", &f.envoy), f.readEarlier(dir),
	)
}

// readEarlier reads before.json: the goals.json of an earlier run, which somebody has kept.
func (f *findings) readEarlier(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "before.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return cmp.Or(err, json.Unmarshal(raw, &f.earlier))
}

func read[T any](f *findings, dir, name string, to *T) error {
	file := File[*T]{Result: to}
	found, err := file.Read(dir, name)
	if found {
		f.Sources = append(f.Sources, Source{name, file.Command, file.Machine})
	}
	return err
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
	// Want is the figure, and Least whether it is one to be reached rather than kept below.
	Want  float64 `json:"want"`
	Least bool    `json:"at_least"`
	// Readings are what was measured; the goal is met if all are as wanted, and partly if some are.
	Readings []Reading `json:"readings"`
	Bound    string    `json:"bounded_by"`
	Verdict  string    `json:"verdict"`
}

// Reading is one figure with what it is of.
type Reading struct {
	Of    string  `json:"of"`
	Value float64 `json:"value"`
	Good  bool    `json:"-"`
	// Before is what was measured last time, or 0.
	Before float64 `json:"-"`
}

// add adds a measurement. 0 means that there is none.
func (g *Goal) add(of string, value float64) {
	if value > 0 {
		g.note(of, value)
	}
}

func (g *Goal) note(of string, value float64) {
	good := value <= g.Want
	if g.Least {
		good = value >= g.Want
	}
	g.Readings = append(g.Readings, Reading{Of: of, Value: value, Good: good})
	n := 0
	for _, r := range g.Readings {
		if r.Good {
			n++
		}
	}
	switch n {
	case len(g.Readings):
		g.Verdict = "met"
	case 0:
		g.Verdict = "missed"
	default:
		g.Verdict = fmt.Sprintf("partly: %d of %d", n, len(g.Readings))
	}
}

// Figure is the value, and the one before it.
func (r Reading) Figure() string {
	if r.Before == 0 {
		return digits(r.Value)
	}
	return digits(r.Value) + ", before " + digits(r.Before)
}

// digits formats a value with as many digits as mean something.
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
		f.messageGoals(), f.lossGoals(), f.clusterGoals(), f.doorGoals())
	for i := range all {
		all[i].Verdict = cmp.Or(all[i].Verdict, "not measured")
		for j := range all[i].Readings {
			r := &all[i].Readings[j]
			r.Before = f.before(all[i].Goal, r.Of)
		}
	}
	return all
}

// before returns what was measured last time for a goal, or 0.
func (f *findings) before(goal, of string) float64 {
	for _, g := range f.earlier {
		for _, r := range g.Readings {
			if g.Goal == goal && r.Of == of {
				return r.Value
			}
		}
	}
	return 0
}
