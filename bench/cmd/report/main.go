package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"twotier/bench/findings"
	"twotier/bench/report"
)

func main() {
	out := flag.String("out", "results", "`directory` of the results")
	flag.Parse()
	if err := run(*out); err != nil {
		log.Fatal(err)
	}
}

func run(dir string) error {
	all, err := findings.Read(dir)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# What was measured\n\nMade by `go run ./cmd/report` of the results beside it, each of which names its machine and command.\n\n")
	b.WriteString(sources(all))
	b.WriteString("\n## The goals\n\n")
	goals := judge(all)
	b.WriteString(goalTable(goals))
	b.WriteString("\n")
	for _, p := range pictures(all) {
		if err := os.WriteFile(filepath.Join(dir, p.name+".svg"), p.svg, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		fmt.Fprintf(&b, "## %s\n\n![%s](%s.svg)\n\n%s\n\n", p.title, p.title, p.name, p.text)
	}
	fmt.Print(goalTable(goals))
	return errors.Join(os.WriteFile(filepath.Join(dir, "report.md"), []byte(b.String()), 0o644), writeJSON(dir, goals))
}

// sources lists the files that there are.
func sources(a findings.All) string {
	var rows [][]string
	for _, s := range []struct {
		name string
		row  []string
	}{
		{"compare", source(a.Compare)}, {"interval", source(a.Interval)}, {"growth", source(a.Growth)}, {"http", source(a.HTTP)},
		{"memory", source(a.Memory)}, {"messages", source(a.Messages)}, {"loss", source(a.Loss)},
	} {
		if s.row != nil {
			rows = append(rows, append([]string{"[" + s.name + "](" + s.name + ".md)"}, s.row...))
		}
	}
	return report.Table([]string{"result", "command", "machine", "load average"}, rows)
}

func source[T any](f *findings.File[T]) []string {
	if f == nil {
		return nil
	}
	m := f.Machine
	return []string{"`" + f.Command + "`", fmt.Sprintf("%d cores of %s, %s, Redis %s, %s", m.Cores, m.CPU, m.Go, m.Redis,
		m.Time.Format("2 January 2006 15:04 MST")), m.Load}
}
