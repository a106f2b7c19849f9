package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
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
