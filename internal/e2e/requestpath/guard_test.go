package requestpath

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// guards returns the files that a request visits only for a guard, given the blocks that it
// executes.
func guards(t *testing.T, executed []place) (files []string) {
	byFile := map[string][]place{}
	for _, at := range executed {
		byFile[at.file] = append(byFile[at.file], at)
	}
	for name, blocks := range byFile {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if isGuard(t, string(text), blocks) {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files
}

// isGuard reports whether the executed blocks of a file only answer whether to go on: their
// functions return no more than a boolean, an error or a pointer, and the executed statements are
// conditions and returns.
func isGuard(t *testing.T, text string, executed []place) bool {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		visited, others := statements(set, fn, executed)
		if others || visited && !answers(fn.Type.Results) {
			return false
		}
	}
	return true
}

// statements reports whether any statement of a function is in an executed block, and whether any
// such statement is more than a condition or a return.
func statements(set *token.FileSet, fn *ast.FuncDecl, executed []place) (visited, others bool) {
	var inits []ast.Node // statements that belong to a condition
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		s, ok := n.(ast.Stmt)
		if !ok || !slices.ContainsFunc(executed, func(b place) bool {
			return b.contains(set.Position(s.Pos()))
		}) {
			return true
		}
		switch s := s.(type) {
		case *ast.IfStmt:
			inits = append(inits, s.Init)
			visited = true
		case *ast.SwitchStmt:
			inits = append(inits, s.Init)
			visited = true
		case *ast.ReturnStmt:
			visited = true
		case *ast.BlockStmt, *ast.CaseClause:
		default:
			visited, others = true, others || !slices.Contains(inits, n)
		}
		return true
	})
	return visited, others
}

// answers reports whether a function's results are no more than a boolean, an error or a pointer.
func answers(results *ast.FieldList) bool {
	if results.NumFields() != 1 {
		return results.NumFields() == 0
	}
	switch of := results.List[0].Type.(type) {
	case *ast.Ident:
		return of.Name == "bool" || of.Name == "error"
	case *ast.StarExpr:
		return true
	}
	return false
}

// contains reports whether a block contains a position.
func (at place) contains(p token.Position) bool {
	var fromLine, from, toLine, to int
	span := at.text[strings.LastIndexByte(at.text, ':')+1:]
	if _, err := fmt.Sscanf(span, "%d.%d,%d.%d", &fromLine, &from, &toLine, &to); err != nil {
		return false
	}
	return (p.Line > fromLine || p.Line == fromLine && p.Column >= from) &&
		(p.Line < toLine || p.Line == toLine && p.Column < to)
}

// TestGuards finds the file of which a request executes only a condition.
func TestGuards(t *testing.T) {
	const text = `package p

func full(n int) bool {
	if n > 3 {
		return true
	}
	return false
}

func count(n int) int {
	n++
	return n
}
`
	condition := place{text: "p.go:3.23,4.11 1"}
	last := place{text: "p.go:7.2,7.14 1"}
	other := place{text: "p.go:10.23,13.2 2"}
	for _, test := range []struct {
		executed []place
		want     bool
	}{
		{[]place{condition, last}, true},
		{[]place{condition, last, other}, false},
		{[]place{other}, false},
	} {
		if got := isGuard(t, text, test.executed); got != test.want {
			t.Errorf("%v: %v, want %v", test.executed, got, test.want)
		}
	}
}
