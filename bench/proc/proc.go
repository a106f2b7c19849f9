package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Process is one running child.
type Process struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr *tail
	exited chan struct{}
	err    error
	killed atomic.Bool
}

// grace is how long a process may take to end: twotier flushes what Redis does not have, which can be much after a closed
// loop.
const grace = time.Minute

// start runs a program until Stop is called or ctx ends, either of which sends SIGTERM first and kills a minute later.
func start(ctx context.Context, name string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	p := &Process{cmd: cmd, stderr: &tail{}, exited: make(chan struct{})}
	cmd.Stderr = p.stderr
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(name), err)
	}
	cmd.Stdout, p.stdout = w, r
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", filepath.Base(name), err), r.Close(), w.Close())
	}
	_ = w.Close()
	go p.runWait()
	return p, nil
}

func (p *Process) runWait() {
	p.err = p.cmd.Wait()
	close(p.exited)
}

// runDrain reads what nobody wants to know, so that the process never waits for its reader.
func (p *Process) runDrain() {
	_, _ = io.Copy(io.Discard, p.stdout)
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process at once, as a crash would. That it was killed is no error of a later Stop.
func (p *Process) Kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Stop asks the process to end and waits until it has; it may be called twice.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	if p.err != nil && !p.killed.Load() {
		return fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), p.err, p.stderr)
	}
	return nil
}

// Build compiles the main package pkg, as `go build` would name it from dir, and returns the path of the program in a
// directory that is the caller's to remove.
func Build(ctx context.Context, dir, pkg string) (string, error) {
	out, err := os.MkdirTemp("", "bench")
	if err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	bin := filepath.Join(out, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, pkg)
	cmd.Dir = dir
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build %s: %w: %s", pkg, err, msg), os.RemoveAll(out))
	}
	return bin, nil
}

// FreePort asks the kernel for a port that nobody listens on.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
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
