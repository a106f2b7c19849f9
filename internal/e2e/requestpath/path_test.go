package requestpath

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// module is the path of this module, before the names of files in coverage.
const module = "twotier.dev/twotier/"

// root is the directory of the module.
var root = filepath.Join("..", "..", "..")

// request is a kind of request whose path is counted.
type request struct{ name, path, body string }

var requests = []request{
	{"add", "/v1/add", `{"key":"k"}`},
	{"acquire", "/v1/acquire", `{"key":"k","limits":[{"window":"1m","max":1000000}]}`},
}

// TestArchitectureListsTheRequestPath compares the files and figures in docs/architecture.md with
// the files that a warm add and a warm acquire execute.
func TestArchitectureListsTheRequestPath(t *testing.T) {
	text := must.Read(t, filepath.Join(root, "docs", "architecture.md"))
	covered, probed := withCoverage(t), withProbe(t)
	for _, r := range requests {
		blocks := covered.measure(t, r)
		executed := functions(t, blocks)
		files := slices.Sorted(maps.Keys(executed))
		depth := probed.depth(t, r)
		t.Logf("%s: %d files, %d calls deep\n%s", r.name, len(files), len(depth), list(executed))
		t.Logf("calls: %s", strings.Join(depth, " > "))
		t.Logf("only for a guard: %s", strings.Join(guards(t, blocks), ", "))
		if listed := listed(text, r.name); !slices.Equal(listed, files) {
			t.Errorf("docs/architecture.md: a warm %s executes\n%s\nbut listed are\n%s", r.name,
				strings.Join(files, "\n"), strings.Join(listed, "\n"))
		}
		want := fmt.Sprintf("%s: %d files, %d calls deep", r.name, len(files), len(depth))
		if !strings.Contains(text, want) {
			t.Errorf("docs/architecture.md does not say %q", want)
		}
	}
}

// list returns the files with their functions, a line each.
func list(executed map[string][]string) string {
	var b strings.Builder
	for _, file := range slices.Sorted(maps.Keys(executed)) {
		fmt.Fprintf(&b, "  %s: %s\n", file, strings.Join(executed[file], ", "))
	}
	return b.String()
}

// row is a line of the table of files: the file, and the requests that execute it.
var row = regexp.MustCompile("(?m)^\\| `([a-z/]+\\.go)` \\| (both|add|acquire) \\|")

// listed returns the files that the document lists for a kind of request.
func listed(text, name string) (files []string) {
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		if m[2] == "both" || m[2] == name {
			files = append(files, m[1])
		}
	}
	slices.Sort(files)
	return files
}

// block is a line of a coverage profile: file, first line, and how often it was executed.
var block = regexp.MustCompile(`^(.*):(\d+)\.\d+,\S+ \d+ (\d+)$`)

// place is where a block is: its file, its first line, and how the profile spells it, without the
// count.
type place struct {
	file string
	line int
	text string
}

// parse reads a coverage profile.
func parse(t *testing.T, profile string) map[place]int {
	counts := map[place]int{}
	for line := range strings.Lines(profile) {
		m := block.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[3])
		at, err2 := strconv.Atoi(m[2])
		if err != nil || err2 != nil {
			t.Fatalf("%q: %v, %v", line, err, err2)
		}
		text := strings.TrimSuffix(strings.TrimSpace(line), m[3])
		counts[place{strings.TrimPrefix(m[1], module), at, text}] += n
	}
	return counts
}

const (
	// warmUp is how many requests a run makes before the counted ones.
	warmUp = 100
	// counted is how many requests count. It is several times the number of partitions: background
	// work that goes through all of them may do so once more in one run than in the other.
	counted = 5000
	// least is the number of executions from which on a statement counts as executed by every
	// request.
	least = counted * 3 / 4
	// probed is how many requests make the probe print a stack.
	probed = 100
)

// bucket is the function that changes a bucket, bucketFile its file.
const (
	bucketFile = "leaparray/counter.go"
	bucket     = "func (l *Ladder) Add(c Counter, s Stretch, n int64) (ch Change, ok bool) {\n"
	probeFile  = "leaparray/probe.go"
	probe      = `package leaparray

import (
	"runtime/debug"
	"sync/atomic"
)

var probes atomic.Int64

func probe() {
	if probes.Add(1)%50 == 0 {
		debug.PrintStack()
	}
}
`
)

// program is a server with a special build.
type program struct{ *proctest.Program }

// withCoverage returns the server with coverage of all packages.
func withCoverage(t *testing.T) program {
	return program{proctest.NewProgramFrom(t, "", "-cover", "-covermode=atomic",
		"-coverpkg="+module+"...")}
}

// withProbe returns the server with the probe. It has no coverage: the tool that adds coverage does
// not support overlays.
func withProbe(t *testing.T) program {
	source := must.Read(t, filepath.Join(root, bucketFile))
	if !strings.Contains(source, bucket) {
		t.Fatalf("%s has no %q", bucketFile, bucket)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for name, text := range map[string]string{
		bucketFile: strings.Replace(source, bucket, bucket+"\tprobe()\n", 1),
		probeFile:  probe,
	} {
		from, err := filepath.Abs(filepath.Join(root, name))
		must.Succeed(t, err)
		replace[from] = filepath.Join(dir, filepath.Base(name))
		must.Write(t, replace[from], text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must.Succeed(t, err)
	file := filepath.Join(dir, "overlay.json")
	must.Write(t, file, overlay)
	return program{proctest.NewProgramFrom(t, "", "-overlay="+file)}
}

// run starts the server, makes n requests, waits until it has been up for a time, and stops it. It
// returns how long it was up and its output to stderr. Coverage goes to dir.
func (p program) run(
	t *testing.T, r request, n int, upFor time.Duration, dir string,
) (up time.Duration, log string) {
	s := p.Serve(t, proctest.Options{Env: []string{"GOCOVERDIR=" + dir}, MayComplain: true},
		"--flush-interval=10m", "--max-lag=1h") // no flush, or only one run would have some
	began := time.Now()
	for range n {
		s.MustPost(r.path, r.body)
	}
	time.Sleep(upFor - time.Since(began))
	up = time.Since(began)
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	return up, s.Log.String()
}

// profile returns how often each statement was executed by a run of n requests, and how long the
// run took.
func (p program) profile(
	t *testing.T, r request, n int, upFor time.Duration,
) (counts map[place]int, up time.Duration) {
	dir := t.TempDir()
	up, _ = p.run(t, r, n, upFor, dir)
	file := filepath.Join(dir, "profile.txt")
	convert := exec.Command("go", "tool", "covdata", "textfmt", "-i", dir, "-o", file)
	if out, err := convert.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := must.Read(t, file)
	return parse(t, text), up
}

// measure returns the blocks that every request executes.
func (p program) measure(t *testing.T, r request) (executed []place) {
	many, up := p.profile(t, r, warmUp+counted, 0)
	few, _ := p.profile(t, r, warmUp, up)
	for at, n := range many {
		if n-few[at] >= least {
			executed = append(executed, at)
		}
	}
	return executed
}

// functions returns the files of the blocks, and their functions.
func functions(t *testing.T, executed []place) (files map[string][]string) {
	files = map[string][]string{}
	for _, at := range executed {
		name := functionAt(t, at)
		if i, found := slices.BinarySearch(files[at.file], name); !found {
			files[at.file] = slices.Insert(files[at.file], i, name)
		}
	}
	return files
}

// functionAt returns the name of the function around a place, with its receiver's type.
func functionAt(t *testing.T, at place) (name string) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, filepath.Join(root, at.file), nil, parser.SkipObjectResolution)
	must.Succeed(t, err)
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && set.Position(fn.Pos()).Line <= at.line &&
			at.line <= set.Position(fn.End()).Line {
			name = fn.Name.Name
		}
	}
	return name
}

// frame is a call in a stack: the package's path within the module, and the function.
var frame = regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(module) + `([\w/]+\.\S+)\(`)

// depth returns the calls from the handler of a request to the bucket, the outermost first.
func (p program) depth(t *testing.T, r request) (calls []string) {
	_, log := p.run(t, r, probed, 0, t.TempDir())
	for stack := range strings.SplitSeq(log, "goroutine ") {
		if !strings.Contains(stack, module+"httpapi.(*Server).handle(") {
			continue
		}
		calls = nil
		for _, m := range frame.FindAllStringSubmatch(stack, -1) {
			if m[1] != "leaparray.probe" {
				calls = append(calls, m[1])
			}
		}
		slices.Reverse(calls)
	}
	if len(calls) == 0 {
		t.Fatalf("no stack of a request:\n%s", log)
	}
	return calls[slices.IndexFunc(calls, func(c string) bool {
		return strings.HasPrefix(c, "httpapi.(*Server).handle")
	}):]
}

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
