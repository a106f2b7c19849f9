package ruletest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/strictyaml"
)

// maxFile bounds a file of tests, and maxSteps the requests of all its tests, with repetitions.
const (
	maxFile  = 1 << 20
	maxSteps = 1_000_000
)

// File is the content of a file of tests.
type File struct {
	path     string
	settings config.Config // of the namespaces
	rules    *rules.Document
	tests    []test
}

// test is a list of steps that begins without any counts.
type test struct {
	name  string
	start int64 // unix milliseconds
	steps []step
}

// Read reads a file of tests and the files that it names, whose paths are relative to it. Unless
// settings is empty, it is the path of the file of namespaces. The error lists all mistakes.
func Read(path, settings string) (*File, error) {
	text, err := os.ReadFile(path)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s: longer than %d bytes", path, maxFile)
	}
	r := reader{Reader: strictyaml.New(path), file: &File{path: path}}
	top := r.Document(text)
	if top == nil && r.Err() == nil {
		return nil, fmt.Errorf("%s: there is nothing in it", path)
	}
	if top != nil {
		r.readFile(top)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return r.file, r.loadNamed(settings)
}

// reader collects the content of a file of tests.
type reader struct {
	*strictyaml.Reader
	file     *File
	rules    *strictyaml.Node // a list, or a path
	settings string
	requests int64 // so far, with repetitions
	start    int64 // of the current test, in unix milliseconds
	now      int64 // of its last request, relative to its start
	held     map[string]bool
}

// readFile reads the top of the file.
func (r *reader) readFile(top *strictyaml.Node) {
	has := strictyaml.Mapping{Name: "the file", Example: "rules: rules.yaml",
		Valid: "a file of tests has rules, config and tests", Fields: strictyaml.Fields{
			"rules":  nil,
			"config": strictyaml.Text(&r.settings),
			"tests":  strictyaml.Items(&r.file.tests, r.readTest),
		}}.Read(r.Reader, top)
	r.rules = has["rules"]
	switch {
	case r.rules == nil:
		r.Fail(top, "rules is missing: the path of the file of rules, or a list of rules")
	case len(r.file.tests) == 0 && r.Err() == nil:
		r.Fail(cmp.Or(has["tests"], top), "no tests; want tests: [{name: NAME, steps: [...]}]")
	}
}

// defaultStart is the time at which a test starts that names none: a Thursday, at midnight.
func defaultStart() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// readTest reads one test.
func (r *reader) readTest(item *strictyaml.Node) test {
	t := test{start: defaultStart().UnixMilli()}
	r.now, r.held = 0, map[string]bool{}
	steps := strictyaml.Mapping{Name: "a test", Example: "name: three attempts",
		Valid: "a test has name, start and steps", Fields: strictyaml.Fields{
			"name":  strictyaml.Text(&t.name),
			"start": strictyaml.Parsed(&t.start, parseStart),
			"steps": nil,
		}}.Read(r.Reader, item)["steps"]
	switch {
	case t.name == "":
		r.Fail(item, "a test without a name")
	case steps == nil:
		r.Fail(item, "test %q has no steps", t.name)
	default:
		r.start = t.start
		strictyaml.Items(&t.steps, r.readStep)(r.Reader, "steps", steps)
	}
	return t
}

// parseStart parses the time at which a test starts.
func parseStart(text string) (int64, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.UnixMilli() < 1 {
		return 0, fmt.Errorf("%q is not a time such as 2026-03-28T22:30:00Z", text)
	}
	return at.UnixMilli(), nil
}

// loadNamed reads the rules and the namespaces. Unless settings is empty, it is the path of the
// namespaces in place of the file's own.
func (r *reader) loadNamed(settings string) (err error) {
	f := r.file
	if settings == "" && r.settings != "" {
		settings = f.relative(r.settings)
	}
	if f.settings, err = config.ReadNamespaces(settings); err != nil {
		return err
	}
	if strictyaml.IsList(r.rules) {
		f.rules, err = rules.ReadList(f.path, r.rules)
	} else {
		f.rules, err = r.readRulesFile()
	}
	if err != nil {
		return err
	}
	ladders, err := lint.LaddersOf(&f.settings)
	if err != nil {
		return err
	}
	return ladders.CheckWindows(f.rules)
}

// readRulesFile reads the file of rules that the tests name.
func (r *reader) readRulesFile() (*rules.Document, error) {
	text, ok := r.Text(r.rules, "rules")
	if !ok {
		return nil, r.Err()
	}
	path := r.file.relative(text)
	content, err := os.ReadFile(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: rules: %w", r.Position(r.rules), err)
	case len(content) > twotier.MaxRuleText:
		return nil, fmt.Errorf("%s: longer than %d bytes", path, twotier.MaxRuleText)
	}
	return rules.Read(path, content)
}

// relative returns a path in the file as a path of the process.
func (f *File) relative(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.path), path)
}
