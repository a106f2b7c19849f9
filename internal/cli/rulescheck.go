package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/ruletest"
	"twotier.dev/twotier/internal/warning"
)

// rulesCheck is a file of rules with the findings about it.
type rulesCheck struct {
	path     string
	ladders  lint.Ladders
	doc      *rules.Document // nil if it can't be read
	mistakes []string
	warnings []warning.Warning
	notes    []string // what to know about rules that are as they should be
}

// checkRules prints the mistakes and warnings about a file of rules, and returns an error if it has
// a mistake. It takes the namespaces from --config, if given. It asks no server.
func (s *session) checkRules(_ context.Context, f ruleFlags, path string) error {
	c := rulesCheck{path: path, mistakes: []string{}, warnings: []warning.Warning{},
		notes: []string{}}
	if err := c.read(f.config); err != nil {
		return err
	}
	if err := c.print(s.Stdout, s.json); err != nil {
		return err
	}
	if len(c.mistakes) > 0 {
		return fmt.Errorf("%s: %s", path, countOf(len(c.mistakes), "mistake"))
	}
	return nil
}

func (c *rulesCheck) read(settings string) (err error) {
	namespaces, err := config.ReadNamespaces(settings)
	if err != nil {
		return err
	}
	if c.ladders, err = lint.LaddersOf(&namespaces); err != nil {
		return err
	}
	text, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	if len(text) > twotier.MaxRuleText {
		return fmt.Errorf("%s: longer than %d bytes", c.path, twotier.MaxRuleText)
	}
	if c.doc, err = rules.Read(c.path, text); err != nil {
		c.mistakes = strings.Split(err.Error(), "\n")
		return nil
	}
	c.lint()
	return nil
}

// lint finds the windows that the ladders do not cover, and the warnings about the document.
func (c *rulesCheck) lint() {
	c.mistakes = c.mistakes[:0]
	if err := c.ladders.CheckWindows(c.doc); err != nil {
		c.mistakes = strings.Split(err.Error(), "\n")
	}
	c.warnings = append(c.warnings[:0], lint.Rules(c.doc, c.ladders)...)
	c.notes = shadowNotes(c.doc, c.notes[:0])
}

// shadowNotes adds a note about each rule in shadow that judges only requests that name it: this
// traffic may not exist yet.
func shadowNotes(doc *rules.Document, notes []string) []string {
	for _, name := range doc.Rules.Names() {
		r := doc.Rules.Find([]byte(name))
		if r.State == twotier.RuleShadow && !r.Default {
			notes = append(notes, fmt.Sprintf("%s is in shadow: it judges only requests that name "+
				"it", name))
		}
	}
	return notes
}

// print prints the findings, one in each line.
func (c *rulesCheck) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]any{
			"mistakes": c.mistakes, "warnings": c.warnings, "notes": c.notes})
	}
	for _, m := range c.mistakes {
		fmt.Fprintln(w, m)
	}
	for _, f := range c.warnings {
		fmt.Fprintln(w, f)
	}
	if len(c.mistakes) > 0 {
		return nil
	}
	for _, n := range c.notes {
		fmt.Fprintf(w, "%s: %s\n", c.path, n)
	}
	_, err := fmt.Fprintf(w, "%s: no mistakes, %s\n", c.path, countOf(len(c.warnings), "warning"))
	return err
}

// testRules runs the tests of a file and prints the steps that fail. It takes the namespaces from
// --config, if given. It asks no server.
func (s *session) testRules(ctx context.Context, flags ruleFlags, path string) error {
	f, err := ruletest.Read(path, flags.config)
	if err != nil {
		return err
	}
	result, err := f.Run(ctx)
	if err != nil {
		return err
	}
	if s.json {
		err = json.NewEncoder(s.Stdout).Encode(result)
	} else {
		err = s.printTests(path, result)
	}
	if err == nil && len(result.Failures) > 0 {
		err = fmt.Errorf("%s: %d of %s failed", path, len(result.Failures),
			countOf(result.Steps, "step"))
	}
	return err
}

// printTests prints the steps that fail or, if there are none, how many did not.
func (s *session) printTests(path string, result *ruletest.Result) error {
	for i := range result.Failures {
		if err := s.printf("%v\n", &result.Failures[i]); err != nil {
			return err
		}
	}
	if len(result.Failures) > 0 {
		return nil
	}
	return s.printf("%s: %s, %s, all as expected\n", path, countOf(result.Tests, "test"),
		countOf(result.Steps, "step"))
}
