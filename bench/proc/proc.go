package proc

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"twotier.dev/twotier/internal/testing/child"
)

// Process is one running child.
type Process struct {
	child  *child.Child
	name   string
	stderr tail
	killed atomic.Bool
}

const (
	// patience is how long a process may take to be ready.
	patience = time.Minute
	// grace is how long it may take to end: twotier flushes what Redis does not have, which can be
	// much after a closed loop.
	grace = time.Minute
	// PortAttempts is how many free ports are tried for a server that can't choose one itself:
	// another process may take a port before the server does.
	PortAttempts = 5
)

// start runs a program and returns the first line of its standard output that has want in it.
func start(want, name string, args ...string) (*Process, []byte, error) {
	p := &Process{name: filepath.Base(name)}
	line := make(chan []byte, 1)
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &watcher{want: []byte(want), found: line}, &p.stderr
	var err error
	if p.child, err = child.Start(cmd); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	select {
	case l := <-line:
		return p, l, nil
	case <-p.child.Done():
		return nil, nil, fmt.Errorf("start %s: exit status %d: %s", p.name, p.child.ExitCode(),
			p.stderr.String())
	case <-time.After(patience):
		_ = p.child.Kill()
		return nil, nil, fmt.Errorf("start %s: not ready after %v: %s", p.name, patience,
			p.stderr.String())
	}
}

// Kill ends the process at once, as a crash would. That it was killed is no error of a later Stop.
func (p *Process) Kill() {
	p.killed.Store(true)
	_ = p.child.Kill()
}

// Stop asks the process to end and waits until it has; it may be called twice.
func (p *Process) Stop() error {
	if err := p.child.Terminate(grace); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if code := p.child.ExitCode(); code != 0 && !p.killed.Load() {
		return fmt.Errorf("%s: exit status %d: %s", p.name, code, p.stderr.String())
	}
	return nil
}

// CPU is the processor time in seconds that the process has used.
func (p *Process) CPU() (float64, error) {
	stat, err := stat(p.child.Pid())
	return stat.CPUTime(), err
}

// RSS is the memory in bytes that the process holds in RAM.
func (p *Process) RSS() (int64, error) { return RSS(p.child.Pid()) }

// RSS is the memory in bytes that a process holds in RAM.
func RSS(pid int) (int64, error) {
	stat, err := stat(pid)
	return int64(stat.ResidentMemory()), err
}

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	return p.Stat()
}

// FreeAddr asks the kernel for a port of 127.0.0.1 that nobody listens on.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// A watcher takes a process's output, so that it never waits for a reader, and passes on the first
// line that has want in it.
type watcher struct {
	want, rest []byte
	found      chan<- []byte // nil once that was found
}

func (w *watcher) Write(p []byte) (int, error) {
	if w.found == nil {
		return len(p), nil
	}
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if w.rest = rest; bytes.Contains(line, w.want) {
			w.found <- line
			w.found = nil
			return len(p), nil
		}
	}
}

// tail keeps the last part of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - tailBytes; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
