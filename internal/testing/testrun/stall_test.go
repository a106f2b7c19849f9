package main

import (
	"bufio"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
)

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
