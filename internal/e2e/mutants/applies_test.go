package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryMutantFollowsTheCode checks that the text that each mutant replaces is in its file
// exactly once, and that the package of the broken file has no type errors. TestMutants, which
// takes longer, checks that the mutants are noticed.
func TestEveryMutantFollowsTheCode(t *testing.T) {
	built := buildPackages(t)
	for _, m := range slices.Concat(scheduled, modeled, rare) {
		file := filepath.Join("../../..", filepath.FromSlash(m.file))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: %s has what is to be broken %d times", m.name, m.file, n)
			continue
		}
		if err := built.check(file, strings.Replace(string(text), m.old, m.new, 1)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// packages are the packages of the module and all their imports, built.
type packages struct {
	files map[string][]string // the Go files of each package, by directory
	from  types.Importer
	set   *token.FileSet
}

func buildPackages(t *testing.T) *packages {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps",
		"-json=Dir,ImportPath,Export,GoFiles", "./...")
	list.Dir, list.Stderr = "../../..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	export := map[string]string{}
	p := &packages{files: map[string][]string{}, set: token.NewFileSet()}
	for all := json.NewDecoder(bytes.NewReader(out)); ; {
		var one struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
		}
		if err := all.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		export[one.ImportPath], p.files[one.Dir] = one.Export, one.GoFiles
	}
	p.from = importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(export[path])
	})
	return p
}

// check returns the first type error of a package in which one file has another text.
func (p *packages) check(file, text string) error {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return err
	}
	var parsed []*ast.File
	for _, name := range p.files[dir] {
		var src any
		if name == filepath.Base(file) {
			src = text
		}
		one, err := parser.ParseFile(p.set, filepath.Join(dir, name), src, 0)
		if err != nil {
			return err
		}
		parsed = append(parsed, one)
	}
	_, err = (&types.Config{Importer: p.from}).Check(dir, p.set, parsed, nil)
	return err
}
