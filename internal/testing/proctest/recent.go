package proctest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Recent records a growing number and measures its recent growth. It is not safe for concurrent
// use.
type Recent struct {
	at []time.Time
	n  []int64
}

// Note records the current number.
func (r *Recent) Note(n int64) { r.at, r.n = append(r.at, time.Now()), append(r.n, n) }

// Since returns by how much the number has grown since when, according to the recorded values.
// Before the first record it was 0.
func (r *Recent) Since(when time.Time) int64 {
	i := len(r.at)
	for i > 0 && r.at[i-1].After(when) {
		i--
	}
	before := int64(0)
	if i > 0 {
		before = r.n[i-1]
	}
	return r.total() - before
}

func (r *Recent) total() int64 {
	if len(r.n) == 0 {
		return 0
	}
	return r.n[len(r.n)-1]
}

// Memory is the resident memory of a process, in bytes: now, and at its peak.
type Memory struct{ Now, Peak int64 }

// String returns both in mebibytes.
func (m Memory) String() string { return fmt.Sprintf("%d MiB, peak %d MiB", m.Now>>20, m.Peak>>20) }

// Memory returns the resident memory of the process.
func (s *Process) Memory() Memory {
	s.T.Helper()
	return MemoryOf(s.T, s.child.Pid())
}

// MemoryOf returns the resident memory of a process (VmRSS and VmHWM of proc_pid_status(5)).
func MemoryOf(t testing.TB, pid int) Memory {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return Memory{Now: kibibytes(t, string(text), "VmRSS:"),
		Peak: kibibytes(t, string(text), "VmHWM:")}
}

// Descriptors returns the number of open file descriptors of the process.
func (s *Process) Descriptors() int {
	s.T.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.child.Pid()))
	if err != nil {
		s.T.Fatal(err)
	}
	return len(open)
}

// kibibytes returns the value of a line such as "VmRSS:  1024 kB", in bytes.
func kibibytes(t testing.TB, text, name string) int64 {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != name {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return n << 10
	}
	t.Fatalf("there is no %s of the process", name)
	return 0
}

// User returns the effective user and group of the process, as UID:GID.
func (s *Process) User() string {
	s.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.child.Pid()))
	if err != nil {
		s.T.Fatal(err)
	}
	effective := func(name string) string {
		_, rest, _ := strings.Cut(string(text), "\n"+name)
		ids := strings.Fields(rest) // real, effective, ...
		if len(ids) < 2 {
			s.T.Fatalf("no %s in %s", name, text)
		}
		return ids[1]
	}
	return effective("Uid:") + ":" + effective("Gid:")
}
