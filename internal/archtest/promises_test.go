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

// TestEveryPromiseNamesItsTest checks that every row of the tables in docs/guarantees.md names at
// least one test in its last column, and has the cells of its header.
func TestEveryPromiseNamesItsTest(t *testing.T) {
	promises := 0
	for _, table := range tables(read(t, "docs/guarantees.md")) {
		for _, row := range table[2:] {
			promises++
			if len(row) != len(table[0]) {
				t.Errorf("docs/guarantees.md: %d cells under a header of %d: %s", len(row),
					len(table[0]), strings.Join(row, " | "))
			} else if !testName.MatchString(row[len(row)-1]) {
				t.Errorf("docs/guarantees.md names no test for: %s", row[0])
			}
		}
	}
	if promises < 100 {
		t.Fatalf("found only %d promises: the rule looks in the wrong place", promises)
	}
}

// TestGuaranteesStandOnce checks that no other document repeats a promise of docs/guarantees.md.
func TestGuaranteesStandOnce(t *testing.T) {
	promised := make(map[string]bool)
	for _, table := range tables(read(t, "docs/guarantees.md")) {
		for _, row := range table[2:] {
			if words := plain(row[0]); table[0][0] == "promise" && len(words) > 40 {
				promised[words] = true
			}
		}
	}
	for _, doc := range documents(t) {
		if filepath.ToSlash(doc) == "docs/guarantees.md" {
			continue
		}
		text := plain(read(t, doc))
		for p := range promised {
			if strings.Contains(text, p) {
				t.Errorf("%s repeats a promise of docs/guarantees.md: %s", doc, p)
			}
		}
	}
}

// plain returns a text without emphasis, with single spaces between its words.
func plain(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("*", "", "`", "").Replace(text)), " ")
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

// tables returns the tables of a Markdown text: their rows, with the header and the line under it.
func tables(text string) (list [][][]string) {
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		if !inside {
			list, inside = append(list, nil), true
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		list[len(list)-1] = append(list[len(list)-1], cells)
	}
	return list
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
