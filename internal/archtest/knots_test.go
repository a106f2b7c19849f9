package archtest

import (
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

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
