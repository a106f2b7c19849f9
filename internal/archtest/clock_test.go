package archtest

import (
	"go/ast"
	"slices"
	"strconv"
	"testing"
)

// TestPurePackages checks what the documentation of leaparray and decide promises: no clock, no
// lock, no goroutine, no I/O.
func TestPurePackages(t *testing.T) {
	forbidden := []string{"context", "io", "log", "log/slog", "net", "os", "sync", "sync/atomic",
		"unsafe"}
	clocks := []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep",
		"Tick", "Until"}
	for _, p := range packages(t) {
		if p.path != "leaparray" && p.path != "decide" {
			continue
		}
		for _, f := range p.files {
			for _, imp := range f.Imports {
				if to, err := strconv.Unquote(imp.Path.Value); err != nil ||
					slices.Contains(forbidden, to) {
					t.Errorf("%s: a pure package must not import %s", p.at(imp.Pos()),
						imp.Path.Value)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s: a pure package must not start goroutines", p.at(n.Pos()))
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" &&
						slices.Contains(clocks, n.Sel.Name) {
						t.Errorf("%s: a pure package must not use time.%s: now is an argument",
							p.at(n.Pos()), n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}
