package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestStateRule applies the rule to code that it must refuse and to code that it must accept.
func TestStateRule(t *testing.T) {
	const src = `package x
type plain struct{ n int }
var (
	ErrA = errors.New("a")
	ErrB = flag.ErrHelp
	pattern = regexp.MustCompile("a")
	name = "n"
	width = 2 * 3
	table = [...]int{1, 2}
	kind = plain{1}
	computed = func() (s [3]int) { return s }()
	_ I = (*T)(nil)
	//go:embed x.html
	page []byte

	list = []int{1}
	index = map[string]int{}
	pointer = &plain{}
	pool sync.Pool
	made = make(chan int)
	called = compute()
	empty []int
)
func change() {
	name = "m"
	table[0]++
	kind.n = 2
	p := &width
	local := 1
	local = 2
	{ name := "shadow"; name = "fine" }
}
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "x.go", src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	p := pkg{path: "x", fset: fset, files: map[string]*ast.File{"x.go": f}}
	vars := packageVars(p)
	for name, want := range map[string]bool{
		"ErrA": true, "ErrB": true, "pattern": true, "name": true, "width": true, "table": true,
		"kind":     true,
		"computed": true, "page": true,
		"list": false, "index": false, "pointer": false, "pool": false, "made": false,
		"called": false, "empty": false,
	} {
		if got := vars[name].constant(p); got != want {
			t.Errorf("%s: constant is %v, want %v", name, got, want)
		}
	}
	var lines []int
	for _, pos := range assignments(f, vars) {
		lines = append(lines, fset.Position(pos).Line)
	}
	if len(lines) != 4 || lines[0] != 25 || lines[3] != 28 {
		t.Errorf("found assignments in lines %v, want 25 to 28", lines)
	}
}

func TestIsStandard(t *testing.T) {
	for path, want := range map[string]bool{
		"net/http": true, "unsafe": true, "twotier.dev/twotier/ring": false,
		"github.com/a/b": false,
	} {
		if got := isStandard(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
