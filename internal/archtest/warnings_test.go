package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryWarningHasASection checks that docs/warnings.md has a section for each code of a
// warning, and no others.
func TestEveryWarningHasASection(t *testing.T) {
	codes := warningCodes(t)
	if len(codes) < 10 {
		t.Fatalf("found only %d codes: the rule looks in the wrong place", len(codes))
	}
	for line := range strings.Lines(read(t, "docs/warnings.md")) {
		code, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
		if !ok {
			continue
		}
		if i := slices.Index(codes, code); i >= 0 {
			codes = slices.Delete(codes, i, i+1)
		} else {
			t.Errorf("docs/warnings.md has a section %s, which is no code or has two", code)
		}
	}
	for _, code := range codes {
		t.Errorf("docs/warnings.md has no section %s", code)
	}
}

// warningCodes returns the values of all constants of type warning.Code.
func warningCodes(t *testing.T) (codes []string) {
	for _, p := range packages(t) {
		if p.path != "internal/warning" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok {
					return true
				}
				if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Code" {
					return true
				}
				for _, value := range spec.Values {
					if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						code, err := strconv.Unquote(lit.Value)
						if err != nil {
							t.Fatal(err)
						}
						codes = append(codes, code)
					}
				}
				return true
			})
		}
	}
	return codes
}
