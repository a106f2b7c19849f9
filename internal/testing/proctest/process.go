package proctest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/child"
)

// Program is the command twotier. The first test that needs it builds it.
type Program struct {
	path  string // "" until it is built
	dir   string // where it is built; "" for a new directory, which Main removes
	from  string // the directory of the module; "" is this one's
	flags []string
	once  sync.Once
	err   error
}

// NewProgram returns the program of this module, built with further flags of go build, for example
// -race. Pass it to [Main].
func NewProgram(flags ...string) *Program { return &Program{flags: flags} }

// NewProgramFrom is NewProgram for one test, from the source tree in a directory ("" is this
// module's).
func NewProgramFrom(t testing.TB, source string, flags ...string) *Program {
	return &Program{dir: t.TempDir(), from: source, flags: flags}
}

// ProgramAt returns an existing program.
func ProgramAt(path string) *Program { return &Program{path: path} }

// Path returns the path of the program. The first call builds it, unless it exists already.
func (p *Program) Path(t testing.TB) string {
	t.Helper()
	p.once.Do(func() {
		if p.path == "" {
			p.path, p.err = p.build()
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path
}

func (p *Program) build() (path string, err error) {
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "proctest"); err != nil {
			return "", err
		}
	}
	path = filepath.Join(p.dir, "twotier")
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s", "-o", path}, p.flags...)
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"),
		append(args, "twotier.dev/twotier/cmd/twotier")...)
	cmd.Dir = p.from
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

// Main is the TestMain of a package that runs a program: it runs the tests, at most so many of them
// in parallel (0: the default of go test), and removes the program. The bound is independent of the
// number of processors, because most such tests wait most of the time.
func Main(m *testing.M, p *Program, together int) {
	flag.Parse()
	if together > 0 {
		if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
			panic(err)
		}
	}
	status := m.Run()
	if err := os.RemoveAll(p.dir); err != nil { // "" removes nothing
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// aloneVariable has the path of the program in a process that MainAlone has started.
const aloneVariable = "PROCTEST_ALONE"

// MainAlone is Main in a network namespace with nothing but loopback, where this machine permits
// it: a browser gives up its requests whenever an interface comes or goes, and other tests make
// some. The program is built before that, because the build may have to download modules.
func MainAlone(m *testing.M, p *Program, together int) {
	const run = `ip link set lo up && exec "$0" "$@"`
	if path := os.Getenv(aloneVariable); path != "" {
		if p.path = path; strings.HasPrefix(filepath.Base(filepath.Dir(path)), "proctest") {
			p.dir = filepath.Dir(path) // which Main removes
		}
	} else if unshare, err := exec.LookPath("unshare"); err == nil &&
		exec.Command(unshare, "--net", "ip", "link", "set", "lo", "up").Run() == nil {
		if path, err = p.build(); err == nil {
			err = syscall.Exec(unshare, append([]string{"unshare", "--net", "sh", "-c", run},
				os.Args...), append(os.Environ(), aloneVariable+"="+path))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	Main(m, p, together)
}

// Options configure how a process is started. The zero value starts it on a free port of loopback.
type Options struct {
	// Listen is the address of its HTTP API. Default: a free port of loopback.
	Listen string
	// Env is added to the environment.
	Env []string
	// Within is a command that runs the program, such as ip netns exec NAME.
	Within []string
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
	cmd.Stderr = &s.Log
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

// Host returns a loopback address that no other test has. Nodes keep trying the addresses of nodes
// that are gone: on 127.0.0.1 such a port could belong to a node of another test by then, and the
// two clusters would merge.
func Host() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
}

// Patience bounds everything that a healthy system does soon. It is long because the machine may be
// busy.
const Patience = 3 * time.Minute

// Until polls until the condition holds. It ends the test if that takes longer than Patience.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	UntilNil(t, what, func() error {
		if !holds() {
			return errors.New("not yet")
		}
		return nil
	})
}

// UntilNil polls until check returns nil. It ends the test if that takes longer than Patience.
func UntilNil(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Wait waits for a channel to be closed. It ends the test if that takes longer than Patience.
func Wait(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(Patience):
		t.Fatalf("%s: not within %v", what, Patience)
	}
}
