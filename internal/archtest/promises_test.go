package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// TestEveryPromiseNamesItsTest checks that every sentence and table row of the README's guarantees
// is in the table of docs/guarantees.md with at least one test, and that the table has no other
// rows.
func TestEveryPromiseNamesItsTest(t *testing.T) {
	promised := promises(section(t, "README.md", "## Guarantees"),
		section(t, "README.md", "## A cluster"))
	if len(promised) < 20 {
		t.Fatalf("found only %d promises: the rule looks in the wrong place", len(promised))
	}
	kept := keptBy(read(t, "docs/guarantees.md"))
	for _, p := range promised {
		if len(kept[p]) == 0 {
			t.Errorf("docs/guarantees.md names no test for: %s", p)
		}
		delete(kept, p)
	}
	for p := range kept {
		t.Errorf("docs/guarantees.md has what the README does not promise: %s", p)
	}
}

// TestNamedTestsExist checks that every test that a document names exists. A name that ends in ...
// stands for all tests that begin with it.
func TestNamedTestsExist(t *testing.T) {
	tests := testNames(t)
	for _, file := range documents(t) {
		for _, name := range testName.FindAllString(read(t, file), -1) {
			head, open := strings.CutSuffix(name, "...")
			if !slices.ContainsFunc(tests, func(n string) bool {
				return n == head || open && strings.HasPrefix(n, head)
			}) {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
	}
}

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*(?:\.\.\.)?`)

// section returns the text under a heading of a document, up to the next of the same level.
func section(t *testing.T, file, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(read(t, file), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no %q", file, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// sentenceEnd matches the end of a sentence and the beginning of the next.
var sentenceEnd = regexp.MustCompile(`\.\s+([A-Z\x60])`)

// promises returns the sentences of the lists in Markdown texts and the rows of their tables, each
// on one line.
func promises(texts ...string) (list []string) {
	for _, text := range texts {
		for _, block := range blocks(text) {
			if cells, ok := row(block); ok {
				list = append(list, strings.Join(cells, " — "))
				continue
			}
			marked := sentenceEnd.ReplaceAllString(strings.ReplaceAll(block, "**", ""), ".\n$1")
			list = append(list, strings.Split(strings.TrimPrefix(marked, "- "), "\n")...)
		}
	}
	return list
}

// blocks returns the items of lists and the rows of tables, without their line breaks.
func blocks(text string) (list []string) {
	header := true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "|"):
			if !header {
				list = append(list, line)
			}
			header = header && !strings.HasPrefix(line, "|---")
			continue
		case strings.HasPrefix(line, "- "):
			list = append(list, line)
		case strings.HasPrefix(line, "  ") && len(list) > 0:
			list[len(list)-1] += " " + strings.TrimSpace(line)
		}
		header = true
	}
	return list
}

// row returns the cells of a table row that are not empty.
func row(line string) (cells []string, ok bool) {
	if !strings.HasPrefix(line, "|") {
		return nil, false
	}
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		if cell = strings.TrimSpace(cell); cell != "" {
			cells = append(cells, cell)
		}
	}
	return cells, true
}

// keptBy reads a table of promises: the first column has the promise, the second its tests.
func keptBy(doc string) map[string][]string {
	kept := map[string][]string{}
	for _, block := range blocks(doc) {
		if cells, ok := row(block); ok && len(cells) == 2 {
			kept[cells[0]] = testName.FindAllString(cells[1], -1)
		}
	}
	return kept
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	must.Succeed(t, err)
	return string(b)
}

// documents returns the Markdown files of the tree, except for the changelog, which may name things
// that no longer exist.
func documents(t *testing.T) (files []string) {
	t.Helper()
	walk(t, ".md", func(file string) {
		if filepath.Base(file) != "CHANGELOG.md" {
			files = append(files, file)
		}
	})
	return files
}

// testNames returns the names of all tests, fuzz functions and benchmarks.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	walk(t, "_test.go", func(file string) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil,
			parser.SkipObjectResolution)
		must.Succeed(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names = append(names, fn.Name.Name)
			}
		}
	})
	return names
}

// walk calls fn for every file of the tree, including the module bench, whose name ends in suffix.
func walk(t *testing.T, suffix string, fn func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && file != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if err == nil && !d.IsDir() && strings.HasSuffix(file, suffix) {
			rel, _ := filepath.Rel(root, file)
			fn(rel)
		}
		return err
	})
	must.Succeed(t, err)
}
