package archtest

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const module = "twotier.dev/twotier"

// TestPublicAPIMentionsNoInternalType checks that users of a public package can name every type
// that it mentions: they couldn't implement an interface whose methods take a type of an internal
// package, or set an option of such a type. Package httpapi serves nodes, which are internal, and
// the part of redisstore that keeps different values serves a node's engine.
func TestPublicAPIMentionsNoInternalType(t *testing.T) {
	var public []string
	for _, p := range packages(t) {
		if p.name() != "main" && !isInternal(p.path) && p.path != "httpapi" {
			public = append(public, path.Join(module, p.path))
		}
	}
	if !slices.Contains(public, module+"/httpapi/client") || !slices.Contains(public, module) {
		t.Fatalf("not all are among the public packages %v", public)
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", exportData(t, public))
	for _, path := range public {
		p, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		w := surface{pkg: p, seen: make(map[types.Type]bool)}
		for _, name := range p.Scope().Names() {
			if obj := p.Scope().Lookup(name); obj.Exported() {
				w.visit(obj.Type(), name)
			}
		}
		for _, found := range w.found {
			t.Errorf("%s: %s", path, found)
		}
	}
}

// isInternal reports whether a package can't be imported from outside the module.
func isInternal(path string) bool { return slices.Contains(strings.Split(path, "/"), "internal") }

// exportData compiles packages with the go command and returns a lookup of their export data.
func exportData(t *testing.T, paths []string) importer.Lookup {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	// Next to tests under the race detector, everything has already been compiled for it.
	self, _ := debug.ReadBuildInfo()
	if self != nil && slices.Contains(self.Settings, debug.BuildSetting{Key: "-race",
		Value: "true"}) {
		args = append(args, "-race")
	}
	args = append(args, paths...)
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := make(map[string]string)
	for line := range bytes.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(files[path])
	}
}

// surface visits the types that users of a package can see.
type surface struct {
	pkg   *types.Package
	seen  map[types.Type]bool
	found []string
}

// visit checks a type that users reach through the declaration at.
func (w *surface) visit(t types.Type, at string) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		w.named(t.Obj(), at)
		w.visit(t.Rhs(), at)
	case *types.Named:
		w.named(t.Obj(), at)
		if t.Obj().Pkg() != w.pkg {
			return // another package; if it is ours, it is checked separately
		}
		for i := range t.NumMethods() {
			if m := t.Method(i); m.Exported() {
				w.visit(m.Type(), at+"."+m.Name())
			}
		}
		w.visit(t.Underlying(), at)
	case *types.Struct:
		for i := range t.NumFields() {
			if f := t.Field(i); f.Exported() {
				w.visit(f.Type(), at+"."+f.Name())
			}
		}
	case *types.Interface:
		for i := range t.NumMethods() {
			w.visit(t.Method(i).Type(), at+"."+t.Method(i).Name())
		}
	case *types.Signature:
		w.visit(t.Params(), at)
		w.visit(t.Results(), at)
	case *types.Tuple:
		for i := range t.Len() {
			w.visit(t.At(i).Type(), at)
		}
	case *types.Map:
		w.visit(t.Key(), at)
		w.visit(t.Elem(), at)
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		w.visit(t.Elem(), at)
	}
}

// named records a type if its package is internal to this module.
func (w *surface) named(name *types.TypeName, at string) {
	if p := name.Pkg(); p != nil && p != w.pkg && strings.HasPrefix(p.Path(), module) &&
		isInternal(p.Path()) {
		w.found = append(w.found, fmt.Sprintf("%s mentions %s.%s, which users can't name", at,
			p.Name(), name.Name()))
	}
}
