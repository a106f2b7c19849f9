package ruletest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	ladders  lint.Ladders
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

func (r *reader) readTest(item *strictyaml.Node) test {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // a Thursday, unless the test names one
	t := test{start: start.UnixMilli()}
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
	if f.ladders, err = lint.LaddersOf(&f.settings); err != nil {
		return err
	}
	return f.ladders.CheckWindows(f.rules)
}

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

// expectation is what a step expects of each answer. Nil and empty fields expect nothing.
type expectation struct {
	verdict                string // allowed or refused
	by, near, shadow, over []string
	retryAfter             int64 // milliseconds, or -1: never
	hasRetryAfter          bool
	counts                 []wantedCount
}

// wantedCount is the expected count of a limit.
type wantedCount struct {
	name string
	n    int64
}

// outcome is the answer to a request.
type outcome struct {
	allowed          bool
	by, near, shadow []string // names of limits
	retryAfter       int64
	limits           []judged
	settled          bool // the request was a settlement
	over             []string
}

func (o *outcome) verdict() string { return twotier.VerdictOf(!o.allowed, false).String() }

// judged is a limit with its count.
type judged struct {
	name       string
	count, max int64
}

// addFields adds the keys of an expectation to those of its step.
func (w *expectation) addFields(fields strictyaml.Fields) {
	fields["expect"] = strictyaml.OneOf(&w.verdict, "allowed", "refused")
	fields["by"] = strictyaml.Texts(&w.by)
	fields["near"] = strictyaml.Texts(&w.near)
	fields["shadow"] = strictyaml.Texts(&w.shadow)
	fields["over"] = strictyaml.Texts(&w.over)
	fields["retry_after"] = strictyaml.Parsed(&w.retryAfter, parseRetry)
	fields["counts"] = w.readCounts
}

// parseRetry parses the time until a retry, or never.
func parseRetry(text string) (int64, error) {
	if text == "never" {
		return -1, nil
	}
	return parseDuration(text)
}

// readCounts reads a mapping from limits to their counts.
func (w *expectation) readCounts(r *strictyaml.Reader, name string, n *strictyaml.Node) {
	strictyaml.Mapping{Name: name, Example: "login/1m: 3",
		Each: func(limit string, _, to *strictyaml.Node) {
			c := wantedCount{name: limit}
			strictyaml.Number(&c.n, 0, twotier.Unlimited)(r, limit, to)
			w.counts = append(w.counts, c)
		}}.Read(r, n)
}

// isMet reports whether an outcome is as expected.
func (w *expectation) isMet(o *outcome) bool {
	if w.verdict != "" && w.verdict != o.verdict() ||
		w.hasRetryAfter && w.retryAfter != o.retryAfter {
		return false
	}
	for _, list := range [][2][]string{{w.by, o.by}, {w.near, o.near}, {w.shadow, o.shadow},
		{w.over, o.over}} {
		if list[0] != nil && !covers(list[0], list[1]) {
			return false
		}
	}
	for _, c := range w.counts {
		found := false
		for _, l := range o.limits {
			if stands(c.name, l.name) {
				if found = true; l.count != c.n {
					return false
				}
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// covers reports whether each wanted name stands for some limits, and each limit has one.
func covers(wanted, have []string) bool {
	matched := map[string]bool{}
	for _, name := range wanted {
		found := false
		for _, l := range have {
			if stands(name, l) {
				found, matched[l] = true, true
			}
		}
		if !found {
			return false
		}
	}
	return !slices.ContainsFunc(have, func(l string) bool { return !matched[l] })
}

// stands reports whether a name stands for a limit such as login/1m: its own name, or the name of
// its rule. Limits of one of several checks begin with the check, as in checks[1].login/1m, which
// the name may leave out.
func stands(name, limit string) bool {
	if name == limit || strings.HasPrefix(limit, name+"/") {
		return true
	}
	_, limit, several := strings.Cut(limit, "].")
	return several && stands(name, limit)
}

// String describes what is expected, as outcome.describe does for the answer.
func (w *expectation) String() string {
	var all []string
	if w.verdict != "" {
		all = append(all, w.verdict)
	}
	all = appendList(all, "by", w.by != nil, w.by)
	if w.hasRetryAfter {
		all = append(all, spellRetry(w.retryAfter))
	}
	all = appendList(all, "near", w.near != nil, w.near)
	all = appendList(all, "shadow", w.shadow != nil, w.shadow)
	all = appendList(all, "over", w.over != nil, w.over)
	for _, c := range w.counts {
		all = append(all, "count of "+c.name+" "+strconv.FormatInt(c.n, 10))
	}
	return strings.Join(all, ", ")
}

func (o *outcome) describe(w *expectation) string {
	if o.settled {
		return strings.Join(appendList(nil, "over", true, o.over), ", ")
	}
	all := []string{o.verdict()}
	all = appendList(all, "by", w.by != nil || len(o.by) > 0, o.by)
	if w.hasRetryAfter || o.retryAfter != 0 {
		all = append(all, spellRetry(o.retryAfter))
	}
	all = appendList(all, "near", w.near != nil || len(o.near) > 0, o.near)
	all = appendList(all, "shadow", w.shadow != nil || len(o.shadow) > 0, o.shadow)
	return strings.Join(all, ", ")
}

// counts describes the limits that were compared.
func (o *outcome) counts() string {
	var all []string
	for _, l := range o.limits {
		all = append(all, fmt.Sprintf("%s %d of %d", l.name, l.count, l.max))
	}
	return strings.Join(all, ", ")
}

func spellRetry(ms int64) string {
	if ms < 0 {
		return "retry_after never"
	}
	return "retry_after " + spell(ms)
}

// appendList appends a name and a list if there is one.
func appendList(all []string, name string, has bool, list []string) []string {
	if !has {
		return all
	}
	if len(list) == 0 {
		return append(all, name+" none")
	}
	return append(all, name+" "+strings.Join(list, " and "))
}
