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
	output *output
	killed atomic.Bool
}

const (
	// patience bounds the time until a process is ready.
	patience = time.Minute
	// grace bounds the time until it ends: twotier flushes its pending counts, which can be many
	// after a closed loop.
	grace = time.Minute
	// PortAttempts is the number of free ports to try for a server that can't choose one itself:
	// another process may take a port before the server does.
	PortAttempts = 5
)

// Start runs a program, waits until its output has a line that contains want, and returns that
// line.
func Start(want, name string, args ...string) (*Process, []byte, error) {
	line := make(chan []byte, 1)
	p := &Process{name: filepath.Base(name), output: &output{want: []byte(want), found: line}}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = p.output, p.output
	var err error
	if p.child, err = child.Start(cmd); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	select {
	case l := <-line:
		return p, l, nil
	case <-p.child.Done():
		return nil, nil, fmt.Errorf("start %s: exit status %d: %s", p.name, p.child.ExitCode(),
			p.output)
	case <-time.After(patience):
		_ = p.child.Kill()
		return nil, nil, fmt.Errorf("start %s: not ready after %v: %s", p.name, patience, p.output)
	}
}

// Kill ends the process at once, as a crash would. A later Stop returns no error for that.
func (p *Process) Kill() {
	p.killed.Store(true)
	_ = p.child.Kill()
}

// Stop terminates the process and waits until it has ended; it may be called twice.
func (p *Process) Stop() error {
	if err := p.child.Terminate(grace); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if code := p.child.ExitCode(); code != 0 && !p.killed.Load() {
		return fmt.Errorf("%s: exit status %d: %s", p.name, code, p.output)
	}
	return nil
}

// CPU returns the processor time in seconds that the process has used.
func (p *Process) CPU() (float64, error) {
	stat, err := stat(p.child.Pid())
	return stat.CPUTime(), err
}

// RSS returns the memory in bytes that the process holds in RAM.
func (p *Process) RSS() (int64, error) { return RSS(p.child.Pid()) }

// RSS returns the memory in bytes that a process holds in RAM.
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

// FreeAddr returns an address of 127.0.0.1 with a port that is free now.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// output reads the output of a process, so that the process never waits for a reader. It keeps the
// last part and passes on the first line that contains want.
type output struct {
	want []byte

	mu    sync.Mutex
	found chan<- []byte // has room for the line; nil once that was found
	last  []byte
}

const outputBytes = 4096

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, p...)
	if at := bytes.Index(o.last, o.want); o.found != nil && at >= 0 {
		begin := bytes.LastIndexByte(o.last[:at], '\n') + 1
		if line, _, whole := bytes.Cut(o.last[begin:], []byte("\n")); whole {
			o.found <- bytes.Clone(line)
			o.found = nil
		}
	}
	if extra := len(o.last) - outputBytes; extra > 0 {
		o.last = append(o.last[:0], o.last[extra:]...)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(bytes.TrimSpace(o.last))
}
