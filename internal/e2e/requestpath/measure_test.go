package requestpath

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

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
