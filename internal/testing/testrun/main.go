package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "`directory` of the module to test")
	allow := flag.String("allow", "", "`file` with the skips that are allowed")
	stall := flag.Duration("stall", 0,
		"make everything stand still for up to so long again and again, as on a busy machine")
	flag.Parse()
	allowed, err := readAllowed(*allow)
	if err == nil {
		err = run(goTest{*dir, *stall}, allowed, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// run runs the tests and prints the report. It returns an error if a test failed, or was skipped
// and is not on the list.
func run(test goTest, allowed []*regexp.Regexp, args []string) error {
	report := newReport(os.Stdout)
	err := errors.Join(test.run(args, report), judge(report.skips, allowed))
	fmt.Print(report.slowest(10))
	for _, line := range report.results {
		fmt.Print(line)
	}
	return err
}

// goTest holds the settings for running go test.
type goTest struct {
	dir   string
	stall time.Duration // 0 to stall nothing
}

// run runs go test once and adds its output to a report.
func (g goTest) run(args []string, r *report) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Stderr = g.dir, os.Stderr
	if slices.Contains(args, "-race") {
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1") // the race detector needs cgo
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if g.stall > 0 {
		done := make(chan struct{})
		defer close(done)
		go stall(cmd.Process.Pid, g.stall, done)
	}
	readErr := r.read(out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return readErr
}

// judge prints all skips and returns an error if one is not allowed.
func judge(skips []skip, allowed []*regexp.Regexp) error {
	refused := 0
	for _, s := range skips {
		if slices.ContainsFunc(allowed, func(re *regexp.Regexp) bool {
			return re.MatchString(s.String())
		}) {
			fmt.Println("skipped, as is allowed:", s)
			continue
		}
		refused++
		fmt.Println("SKIPPED, WHICH IS NOT ALLOWED:", s)
	}
	if refused > 0 {
		return fmt.Errorf("%d tests were skipped", refused)
	}
	return nil
}

// readAllowed reads the list of allowed skips. Without a file no skip is allowed.
func readAllowed(path string) ([]*regexp.Regexp, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read allowed skips: %w", err)
	}
	defer f.Close()
	var allowed []*regexp.Regexp
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		re, err := regexp.Compile(line)
		if err != nil {
			return nil, fmt.Errorf("read allowed skips: %w", err)
		}
		allowed = append(allowed, re)
	}
	return allowed, lines.Err()
}

// event is one line of go test -json: see go doc test2json and go help buildjson.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// skip is one test that was skipped.
type skip struct{ pkg, test, reason string }

func (s skip) String() string { return fmt.Sprintf("%s.%s: %s", s.pkg, s.test, s.reason) }

// testID identifies a test, or a package if test is empty.
type testID struct{ pkg, test string }

// taken is how long the tests of a package took, in seconds.
type taken struct {
	pkg     string
	seconds float64
}

// report collects the output of a run of go test.
type report struct {
	out    io.Writer
	output map[testID][]string // of everything that has not ended yet
	skips  []skip
	times  []taken
	// results are go test's lines about packages, in the order in which the packages ended.
	results []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: make(map[testID][]string)}
}

// read reads the events of a run until it ends.
func (r *report) read(in io.Reader) error {
	events := json.NewDecoder(in)
	for {
		var e event
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			// Read the rest of the output, or go test would block forever.
			_, copyErr := io.Copy(r.out, in)
			return errors.Join(fmt.Errorf("read go test -json: %w", err), copyErr)
		}
		r.take(e)
	}
}

func (r *report) take(e event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[id] = append(r.output[id], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
		delete(r.output, id)
	}
}

func (r *report) endTest(e event) {
	lines := r.output[testID{e.Package, e.Test}]
	switch e.Action {
	case "skip":
		r.skips = append(r.skips, skip{e.Package, e.Test, reason(lines)})
	case "fail":
		r.print(lines)
	}
}

// endPackage keeps go test's line about a package. If the package failed, it prints the output of
// the package and of tests that never ended.
func (r *report) endPackage(e event) {
	lines := r.output[testID{e.Package, ""}]
	for _, line := range lines {
		if isResult(line) {
			r.results = append(r.results, line)
		}
	}
	if e.Action == "fail" {
		for id, rest := range r.output {
			if id.pkg == e.Package && id.test != "" {
				r.print(rest)
			}
		}
		r.print(lines)
	}
	if e.Action != "skip" { // skip: a package without tests
		fmt.Fprintf(r.out, "    %s: %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
		r.times = append(r.times, taken{e.Package, e.Elapsed})
	}
}

// slowest lists the n packages whose tests took longest, the longest first.
func (r *report) slowest(n int) string {
	slices.SortStableFunc(r.times, func(a, b taken) int {
		return cmp.Compare(b.seconds, a.seconds)
	})
	var b strings.Builder
	b.WriteString("the slowest packages:\n")
	for _, t := range r.times[:min(n, len(r.times))] {
		fmt.Fprintf(&b, "%8.1f s  %s\n", t.seconds, t.pkg)
	}
	return b.String()
}

func (r *report) print(lines []string) {
	for _, line := range lines {
		fmt.Fprint(r.out, line)
	}
}

// isResult reports whether a line is go test's result of a package, which begins with ok or FAIL.
func isResult(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t") ||
		strings.HasPrefix(line, "?   \t") ||
		strings.HasPrefix(line, "\t") && strings.Contains(line, "coverage: ")
}

// reason returns the text that a test logged before it was skipped, without source positions.
func reason(lines []string) string {
	var said []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			_, line, _ = strings.Cut(text, ": ")
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// stallEvery is how long all processes run on average between two stalls.
const stallEvery = 8 * time.Second

// stall makes a process and its descendants stand still for up to a given time, again and again
// until done is closed, like an overloaded machine. A test that fails because of it waits for a
// duration where it should wait for a condition, or has found a defect.
func stall(pid int, longest time.Duration, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(rand.N(2 * stallEvery)):
		}
		stopped, err := freeze(pid)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testrun: no stall:", err)
		}
		time.Sleep(rand.N(longest))
		thaw(stopped)
	}
}

// freeze stops a process and its descendants, and returns the ones that were not stopped before.
func freeze(pid int) (stopped []int, err error) {
	for news := true; news; { // until no running process is left that could start another
		news = false
		running, err := family(pid)
		if err != nil {
			return stopped, err
		}
		for _, member := range running {
			if syscall.Kill(member, syscall.SIGSTOP) == nil {
				stopped, news = append(stopped, member), true
			}
		}
	}
	return stopped, nil
}

func thaw(stopped []int) {
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
	}
}

// family returns a process and its descendants, parents first, without stopped ones.
func family(pid int) (running []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("processes can't be listed: there is no /proc (%w)", err)
	}
	children, stopped := map[int][]int{}, map[int]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may contain anything.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(string(fields[1]))
		children[parent] = append(children[parent], id)
		stopped[id] = bytes.ContainsAny(fields[0], "TtZ")
	}
	for all := []int{pid}; len(all) > 0; all = all[1:] {
		if _, lives := stopped[all[0]]; lives && !stopped[all[0]] {
			running = append(running, all[0])
		}
		all = append(all, children[all[0]]...)
	}
	return running, nil
}
