package archtest

import (
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEveryPackageHasADoc(t *testing.T) {
	for _, p := range packages(t) {
		f := p.files["doc.go"]
		if f == nil || f.Doc == nil {
			t.Errorf("%s has no package comment in doc.go", p.path)
			continue
		}
		begin := "Package " + p.name() + " "
		if p.name() == "main" {
			begin = "Command " + path.Base(p.path) + " "
		}
		if !strings.HasPrefix(f.Doc.Text(), begin) {
			t.Errorf("%s: the package comment doesn't begin with %q", p.at(f.Doc.Pos()), begin)
		}
		for name, other := range p.files {
			if name != "doc.go" && other.Doc != nil {
				t.Errorf("%s: a second package comment", p.at(other.Doc.Pos()))
			}
		}
	}
}

// TestPackageNames refuses names that describe nothing about the package.
func TestPackageNames(t *testing.T) {
	empty := []string{"base", "common", "helper", "helpers", "misc", "model", "models", "shared",
		"type", "types", "util", "utils"}
	for _, p := range packages(t) {
		if slices.Contains(empty, p.name()) {
			t.Errorf("%s: package %s could hold anything", p.path, p.name())
		}
		dir := path.Base(p.path)
		if dir == "." {
			dir = path.Base(module)
		}
		if p.name() != "main" && p.name() != dir {
			t.Errorf("%s: package %s lies in a directory called %s", p.path, p.name(), dir)
		}
	}
}

// TestLinesAreShort bounds the columns of a line, with a tab as four. A text that is sent or
// printed stands in one line, as it does there, and so does an import.
func TestLinesAreShort(t *testing.T) {
	const most = 100
	asItIs := regexp.MustCompile("`|\\{\\\\?\"|^\\S+ +h:\\d|\t[a-z0-9]+ \"|[▁ключ😀]")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && ignored(name):
			return filepath.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(name)
		for i, line := range strings.Split(string(text), "\n") {
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > most && !asItIs.MatchString(line) {
				t.Errorf("%s:%d has %d columns, more than %d", name, i+1, columns, most)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreShort(t *testing.T) {
	const most = 400
	for _, p := range packages(t) {
		for name, f := range p.files {
			lines := p.fset.File(f.Pos()).LineCount()
			if lines > most && !ast.IsGenerated(f) {
				t.Errorf("%s/%s has %d lines, more than %d", p.path, name, lines, most)
			}
		}
	}
}

func TestFunctionsAreShort(t *testing.T) {
	const most = 60
	for _, p := range packages(t) {
		for _, f := range p.files {
			if ast.IsGenerated(f) {
				continue
			}
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				lines := p.fset.Position(fn.End()).Line - p.fset.Position(fn.Pos()).Line + 1
				if lines > most {
					t.Errorf("%s: %s has %d lines, more than %d", p.at(fn.Pos()), fn.Name.Name,
						lines, most)
				}
			}
		}
	}
}

// mostTracked is the size of the largest file that may be tracked: each clone keeps it for ever.
const mostTracked = 1 << 20

// TestNoBinaryIsTracked finds build outputs that were committed by accident.
func TestNoBinaryIsTracked(t *testing.T) {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("no git checkout: nothing is tracked")
	}
	list, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "-C", root,
		"ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("only %d files are tracked", len(names))
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(root, name))
		if err == nil && info.Size() > mostTracked {
			t.Errorf("%s has %d bytes, more than %d", name, info.Size(), mostTracked)
		}
	}
}
