package archtest

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// root is the root of this module, relative to this directory.
const root = "../.."

// pkg is the source of one package, without its tests.
type pkg struct {
	path  string // below the module, such as "internal/node"
	fset  *token.FileSet
	files map[string]*ast.File // by name
}

// at returns a position for error messages.
func (p pkg) at(pos token.Pos) string {
	where := p.fset.Position(pos)
	where.Filename = path.Join(p.path, filepath.Base(where.Filename))
	return where.String()
}

// name returns the name in the package clauses.
func (p pkg) name() string {
	for _, f := range p.files {
		return f.Name.Name
	}
	return ""
}

// packages parses all packages of this module.
func packages(t *testing.T) []pkg {
	t.Helper()
	var all []pkg
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != root && ignored(dir) {
			return filepath.SkipDir
		}
		p, err := parseDir(dir)
		if err == nil && len(p.files) > 0 {
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("found only %d packages: the rules look in the wrong place", len(all))
	}
	return all
}

// ignored reports whether the go command ignores the directory too.
func ignored(dir string) bool {
	name := filepath.Base(dir)
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func parseDir(dir string) (pkg, error) {
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return pkg{}, err
	}
	p := pkg{path: filepath.ToSlash(rel), fset: token.NewFileSet(),
		files: make(map[string]*ast.File)}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return p, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(p.fset, name, nil, parser.ParseComments)
		if err != nil {
			return p, err
		}
		p.files[filepath.Base(name)] = f
	}
	return p, nil
}

// mostKnotted bounds the lines of the largest knot of a package. Files that refer to each other, in
// a circle, have to be read together.
var mostKnotted = map[string]int{"syncer": 5000, "httpapi": 4000, "redisstore": 3000}

// TestKnots finds the largest set of files of a package that reach each other by name.
func TestKnots(t *testing.T) {
	var paths []string
	for dir := range mostKnotted {
		paths = append(paths, path.Join(module, dir))
	}
	look := exportData(t, paths)
	for _, p := range packages(t) {
		most, ok := mostKnotted[p.path]
		if !ok {
			continue
		}
		refs := p.references(t, look)
		lines, knot := 0, []string(nil)
		for _, files := range components(refs) {
			n := 0
			for _, f := range files {
				n += p.fset.File(p.files[f].Pos()).LineCount()
			}
			if n > lines {
				lines, knot = n, files
			}
		}
		t.Logf("%s: %d files, a knot of %d files with %d lines", p.path, len(p.files), len(knot),
			lines)
		if lines > most {
			t.Errorf("%s: these files reach each other, %d lines, want at most %d: %s", p.path,
				lines, most, strings.Join(knot, " "))
		}
	}
}

// references returns the files whose declarations each file of the package uses.
func (p pkg) references(t *testing.T, look importer.Lookup) map[string]map[string]bool {
	files := slices.Collect(maps.Values(p.files))
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", look)}
	own, err := conf.Check(path.Join(module, p.path), p.fset, files, info)
	must.Succeed(t, err)
	fileOf := func(pos token.Pos) string { return filepath.Base(p.fset.Position(pos).Filename) }
	refs := make(map[string]map[string]bool)
	for name := range p.files {
		refs[name] = make(map[string]bool)
	}
	for id, obj := range info.Uses {
		field, isVar := obj.(*types.Var)
		isLocal := obj.Parent() != nil && obj.Parent() != own.Scope()
		if obj.Pkg() == own && !isLocal && !(isVar && field.IsField()) {
			refs[fileOf(id.Pos())][fileOf(obj.Pos())] = true
		}
	}
	return refs
}

// components returns the strongly connected components of a graph, by Tarjan's algorithm.
func components(edges map[string]map[string]bool) (all [][]string) {
	index, low := make(map[string]int), make(map[string]int)
	var stack []string
	var visit func(n string)
	visit = func(n string) {
		index[n] = len(index) + 1
		low[n] = index[n]
		stack = append(stack, n)
		for m := range edges[n] {
			if index[m] == 0 {
				visit(m)
				low[n] = min(low[n], low[m])
			} else if slices.Contains(stack, m) {
				low[n] = min(low[n], index[m])
			}
		}
		if low[n] == index[n] {
			at := slices.Index(stack, n)
			all = append(all, slices.Clone(stack[at:]))
			stack = stack[:at]
		}
	}
	for n := range edges {
		if index[n] == 0 {
			visit(n)
		}
	}
	return all
}

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
