package mutants

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
)

// mutant is a way to break one file: old, which must occur exactly once, becomes new. Its net is
// the test that notices: a kind of schedules, or any, and a flag for additional work of their
// clients; or a package and its test, TestModel if none is named.
type mutant struct {
	name, file, old, new, net string
}

var (
	allFlag    = flag.Bool("all", false, "run the mutants that are left out otherwise, too")
	sampleFlag = flag.Int("sample", 0, "run only so many mutants, drawn by -draw (0: no limit)")
	drawFlag   = flag.Uint64("draw", 0, "the seed by which -sample draws")
)

// most is how many schedules are run against a mutant, and mostSeeds how many seeds of a model: one
// of them must fail. The first failure ends the run, so both may be many times the average number
// needed.
const (
	most      = "500"
	mostSeeds = "3000"
)

// why matches the line of a schedule that reports the failure.
var why = regexp.MustCompile(
	`(?m)^\s+\w+_test\.go:\d+: (\S+: (?:Redis has|node|\d+ admitted|n\d+).*|node .*|n\d+ .*)$`)

// ran matches the number of schedules that were run.
var ran = regexp.MustCompile(` \d+ of \d+ schedules`)

// failed matches how a run says that it has noticed: a test fails, or the embedded store is given
// content which is not what the key, which the message names, has.
var failed = regexp.MustCompile(`--- FAIL: Test|(?m)^panic: "\w+": `)

// TestMutants builds each mutant and expects the schedules, or the model, to fail.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make long runs it")
	}
	root, err := filepath.Abs("../../..")
	must.Succeed(t, err)
	for _, m := range drawn() {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out, err := runBroken(t, root, &m)
			switch {
			case err == nil:
				t.Fatalf("nothing noticed that %s:\n%s", m.name, out)
			case !failed.MatchString(out):
				t.Fatalf("no schedule says what is wrong: %v\n%s", err, out)
			}
			t.Logf("caught by%s in %.0f s: %s", ran.FindString(out), time.Since(began).Seconds(),
				reason(out))
		})
	}
}

// drawn returns the mutants to run.
func drawn() []mutant {
	list := slices.Concat(scheduled, modeled)
	if *allFlag {
		list = append(list, rare...)
	}
	if n := *sampleFlag; n > 0 && n < len(list) {
		rnd := rand.New(rand.NewPCG(*drawFlag, 0))
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:n]
	}
	return list
}

// runBroken runs the net of a mutant with one file of the tree changed, and returns its output.
func runBroken(t *testing.T, root string, m *mutant) (string, error) {
	file := filepath.Join(root, filepath.FromSlash(m.file))
	text := must.Read(t, file)
	if n := strings.Count(text, m.old); n != 1 {
		t.Fatalf("%s has what is to be broken %d times: the mutant has to follow the code",
			m.file, n)
	}
	dir := t.TempDir()
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	must.Write(t, broken, strings.Replace(text, m.old, m.new, 1))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
	must.Succeed(t, err)
	must.Write(t, overlay, list)
	binary := filepath.Join(dir, "simtest")
	net, what, _ := strings.Cut(m.net, " ")
	args := []string{"-test.timeout=10m"}
	if strings.HasPrefix(net, "./") {
		args = append(args, "-test.run="+cmp.Or(what, "TestModel"))
	} else {
		args = append(args, "-test.run=TestSchedules", "-schedules="+most,
			"-kind="+strings.TrimPrefix(net, "any"))
		args = append(args, strings.Fields(what)...)
		net = "./internal/e2e/simtest"
	}
	if net == "./syncer" {
		args = append(args, "-seeds="+mostSeeds)
	}
	// Without debug information linking takes a third less time.
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w",
		"-overlay", overlay, "-o", binary, net)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not build: %v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), binary, args...)
	run.Env = append(os.Environ(), "GOMAXPROCS=1") // there are as many mutants as processors
	out, err := run.CombinedOutput()
	return string(out), err
}

// reason returns the message of the first schedule that failed.
func reason(out string) string {
	if m := why.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	lines := strings.Split(out, "\n")
	return strings.Join(lines[:min(5, len(lines))], "\n")
}

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
