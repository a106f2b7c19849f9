package proctest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/child"
)

// Options configure how a process is started. The zero value starts it on a free port of loopback.
type Options struct {
	// Listen is the address of its HTTP API. Default: a free port of loopback.
	Listen string
	// Env is added to the environment.
	Env []string
	// Within is a command that runs the program, such as ip netns exec NAME.
	Within []string
	// Files are inherited, as descriptors from 3 on.
	Files []*os.File
	// Started, if set, is called with the process before it is ready.
	Started func(*Process)
	// MayComplain turns off the check of the log at the end of the test.
	MayComplain bool
	// Complaints are parts of lines that the node may log as errors.
	Complaints []string
}

// Process is one twotier serve.
type Process struct {
	T      testing.TB
	Base   string // URL of its HTTP API
	Listen string // the same as host:port
	Gossip string // its gossip address, "" without a cluster
	Resp   string // the address for Redis clients, "" without --resp
	GRPC   string // the address for Envoy, "" without --grpc
	Admin  string // the address for administration, "" if that is Listen
	Peer   string // the address for other nodes, "" if that is Listen
	HTTP   *http.Client
	Log    LogBuffer // its output to stderr

	opt   Options
	child *child.Child
}

// LogBuffer collects the output of a process.
type LogBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything written so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Serve starts twotier serve with these flags and waits until it is ready.
func (p *Program) Serve(t testing.TB, opt Options, args ...string) *Process {
	t.Helper()
	s, err := p.TryServe(t, opt, args...)
	if err != nil {
		t.Fatalf("twotier serve: %v\n%s", err, s.Log.String())
	}
	return s
}

// TryServe is Serve, but returns an error if the process doesn't become ready. The process is never
// nil. The hash seed is 0 unless arguments or environment set it, so that tests can locate a key in
// Redis.
func (p *Program) TryServe(t testing.TB, opt Options, args ...string) (*Process, error) {
	t.Helper()
	if opt.Listen == "" {
		opt.Listen = "127.0.0.1:0"
	}
	s := &Process{T: t, HTTP: NewClient(), opt: opt}
	line := append(append([]string{}, opt.Within...), p.Path(t), "serve", "--listen", opt.Listen)
	line = append(line, args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(append(os.Environ(), "TWOTIER_HASH_SEED=0"), opt.Env...)
	cmd.Stderr, cmd.ExtraFiles = &s.Log, opt.Files
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	s.child, err = child.Start(cmd)
	w.Close()
	if err != nil {
		stdout.Close()
		return s, err
	}
	t.Cleanup(func() { s.discard(); stdout.Close() })
	if opt.Started != nil {
		opt.Started(s)
	}
	return s, s.ready(stdout)
}

// ready waits for the ready line, or for the end of the process.
func (s *Process) ready(stdout *os.File) error {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		var ready struct {
			Ready, TLS                  bool
			Listen, Gossip, Resp, Admin string
			GRPC, Peer                  string
		}
		if err := json.Unmarshal([]byte(text), &ready); err != nil || !ready.Ready {
			if text == "" { // it has ended, or is about to: then its log is complete
				Wait(s.T, "the process ends", s.child.Done())
			}
			return fmt.Errorf("no ready line: %q", text)
		}
		s.Listen, s.Base, s.Gossip, s.Admin = ready.Listen, "http://"+ready.Listen, ready.Gossip,
			ready.Admin
		s.Resp, s.GRPC, s.Peer = ready.Resp, ready.GRPC, ready.Peer
		if ready.TLS {
			s.Base = "https://" + ready.Listen
		}
		return nil
	case <-time.After(Patience):
		return fmt.Errorf("not ready within %v", Patience)
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (s *Process) Kill() { s.check("kill", s.child.Kill()) }

// Stop sends SIGTERM, waits for the end and returns the exit status.
func (s *Process) Stop() int {
	s.T.Helper()
	s.check("stop", s.child.Signal(syscall.SIGTERM))
	Wait(s.T, "the process ends after SIGTERM", s.child.Done())
	return s.child.ExitCode()
}

// Terminate sends SIGTERM and does not wait: see Done.
func (s *Process) Terminate() { s.check("terminate", s.child.Signal(syscall.SIGTERM)) }

// HangUp sends SIGHUP.
func (s *Process) HangUp() { s.check("hang up", s.child.Signal(syscall.SIGHUP)) }

// Pause stops the process (SIGSTOP). It has stopped when Pause returns.
func (s *Process) Pause() { s.check("pause", s.child.Pause()) }

// Resume continues a paused process (SIGCONT).
func (s *Process) Resume() { s.check("resume", s.child.Signal(syscall.SIGCONT)) }

// Done is closed once the process has ended.
func (s *Process) Done() <-chan struct{} { return s.child.Done() }

// ExitCode waits for the end of the process and returns its status, -1 if a signal ended it.
func (s *Process) ExitCode() int { return s.child.ExitCode() }

func (s *Process) check(what string, err error) {
	if err != nil {
		s.T.Errorf("%s %s: %v", what, s.Listen, err)
	}
}

// mayLog reports whether a node may log an error.
func (o *Options) mayLog(line string) bool {
	return o.MayComplain || slices.ContainsFunc(o.Complaints,
		func(part string) bool { return strings.Contains(line, part) })
}

// discard ends the process at the end of its test, and fails the test if the log shows a race, a
// panic or an internal error.
func (s *Process) discard() {
	s.Kill()
	s.HTTP.CloseIdleConnections()
	text := s.Log.String()
	for _, bad := range []string{"DATA RACE", "panic:", "goroutine 1 [", "fatal error:"} {
		if strings.Contains(text, bad) && !s.opt.MayComplain {
			s.T.Errorf("the log of %s has %q", s.Listen, bad)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "level=ERROR") && !s.opt.mayLog(line) {
			s.T.Errorf("the log of %s has the error %s", s.Listen, line)
		}
	}
	if s.T.Failed() {
		s.T.Logf("log of %s:\n%s", s.Listen, text[max(0, len(text)-8<<10):])
	}
}
