package archtest

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
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
