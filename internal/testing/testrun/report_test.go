package main

import (
	"bufio"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
)

const events = `
{"Action":"start","Package":"x/a"}
{"Action":"output","Package":"x/a","Test":"TestOK","Output":"=== RUN   TestOK\n"}
{"Action":"output","Package":"x/a","Test":"TestOK","Output":"noise\n"}
{"Action":"pass","Package":"x/a","Test":"TestOK","Elapsed":0.1}
{"Action":"output","Package":"x/a","Test":"TestSkip/sub","Output":"=== RUN   TestSkip/sub\n"}
{"Action":"output","Package":"x/a","Test":"TestSkip/sub","Output":"    a_test.go:7: no IPv6: here\n"}
{"Action":"output","Package":"x/a","Test":"TestSkip/sub","Output":"    --- SKIP: TestSkip/sub (0.00s)\n"}
{"Action":"skip","Package":"x/a","Test":"TestSkip/sub"}
{"Action":"output","Package":"x/a","Output":"PASS\n"}
{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t0.1s\n"}
{"Action":"pass","Package":"x/a","Elapsed":0.1}
{"Action":"output","Package":"x/b","Test":"TestBad","Output":"    b_test.go:9: wrong\n"}
{"Action":"fail","Package":"x/b","Test":"TestBad"}
{"Action":"output","Package":"x/b","Test":"TestStuck","Output":"panic: stuck\n"}
{"Action":"output","Package":"x/b","Output":"FAIL\tx/b\t0.2s\n"}
{"Action":"fail","Package":"x/b","Elapsed":0.2}
{"Action":"build-output","ImportPath":"x/c","Output":"c.go:1: syntax error\n"}
{"Action":"output","Package":"x/d","Output":"?   \tx/d\t[no test files]\n"}
{"Action":"skip","Package":"x/d"}
`

func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	must.Succeed(t, r.read(strings.NewReader(events)))
	if want := []skip{{"x/a", "TestSkip/sub", "no IPv6: here"}}; !slices.Equal(r.skips, want) {
		t.Errorf("skips are %v, want %v", r.skips, want)
	}
	want := []string{"ok  \tx/a\t0.1s\n", "FAIL\tx/b\t0.2s\n", "?   \tx/d\t[no test files]\n"}
	if !slices.Equal(r.results, want) {
		t.Errorf("results are %q, want %q", r.results, want)
	}
	for _, part := range []string{"b_test.go:9: wrong\n", "panic: stuck\n",
		"c.go:1: syntax error\n", "pass: x/a"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in %q", part, out.String())
		}
	}
	if strings.Contains(out.String(), "noise") {
		t.Error("tests that pass are printed")
	}
}

func TestReportOfNonsense(t *testing.T) {
	if err := newReport(&strings.Builder{}).read(strings.NewReader("nonsense\n")); err == nil {
		t.Error("no error")
	}
}

func TestSlowestPackagesComeFirst(t *testing.T) {
	r := newReport(&strings.Builder{})
	r.times = []taken{{"x/a", 1}, {"x/b", 30}, {"x/c", 2}}
	want := "the slowest packages:\n    30.0 s  x/b\n     2.0 s  x/c\n"
	if got := r.slowest(2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJudge(t *testing.T) {
	skips := []skip{{"x/a", "TestA", "no IPv6 here"}}
	if err := judge(skips, nil); err == nil {
		t.Error("a skip that is on no list passes")
	}
	if err := judge(skips, []*regexp.Regexp{regexp.MustCompile(`TestA: no IPv6`)}); err != nil {
		t.Error(err)
	}
}

// TestStall stops a process and its child, but not a child already stopped, and lets the stopped
// ones run again.
func TestStall(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 100 & echo $!; sleep 100 & echo $!; read line")
	hold, err := cmd.StdinPipe()
	must.Succeed(t, err)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	lines := bufio.NewScanner(out)
	one, two := number(t, lines), number(t, lines)
	t.Cleanup(func() {
		for _, pid := range []int{one, two} {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = hold.Close()
		_ = cmd.Wait()
	})
	must.Succeed(t, syscall.Kill(two, syscall.SIGSTOP))
	until(t, cmd.Process.Pid, cmd.Process.Pid, one)
	stopped, err := freeze(cmd.Process.Pid)
	must.Succeed(t, err)
	if !isSame(stopped, cmd.Process.Pid, one) {
		t.Errorf("%v were stopped, want %d and %d and not %d", stopped, cmd.Process.Pid, one, two)
	}
	until(t, cmd.Process.Pid)
	thaw(stopped)
	until(t, cmd.Process.Pid, cmd.Process.Pid, one)
}

// number reads a line with a number.
func number(t *testing.T, lines *bufio.Scanner) int {
	t.Helper()
	lines.Scan()
	n, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
	must.Succeed(t, err)
	return n
}

// until waits until the wanted processes run, and no others of the family of pid.
func until(t *testing.T, pid int, want ...int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		running, err := family(pid)
		must.Succeed(t, err)
		if isSame(running, want...) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v run, want %v", running, want)
		}
	}
}

// isSame reports whether a list has these processes and no others, in any order. freeze lists a
// process twice if it looks again before the process has stopped.
func isSame(list []int, want ...int) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(list))),
		slices.Sorted(slices.Values(want)))
}
