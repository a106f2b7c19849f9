package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryMutantFollowsTheCode checks that the text that each mutant replaces is in its file
// exactly once, and that the broken file can be parsed. TestMutants, which takes longer, checks
// that the mutants are noticed.
func TestEveryMutantFollowsTheCode(t *testing.T) {
	for _, m := range mutants() {
		text, err := os.ReadFile(filepath.Join("../../..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: %s has what is to be broken %d times", m.name, m.file, n)
			continue
		}
		broken := strings.Replace(string(text), m.old, m.new, 1)
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, broken, 0); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
