package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/child"
)

// Server is one redis-server process.
type Server struct {
	t       testing.TB
	program string
	cfg     config
	dir     string
	port    int
	held    *os.File // the port is this server's until it is closed
	tls     TLSFiles

	mu     sync.Mutex
	child  *child.Child
	client *redis.Client
}

// errPortTaken reports that another process took the port first.
var errPortTaken = errors.New("port is taken")

// Start starts a server and waits until it answers. The server keeps nothing on disk unless an
// option requires it. When the test ends, the server is stopped, and its log is shown if the test
// failed. A missing binary fails the test.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	var cfg config
	for _, opt := range opts {
		opt(&cfg)
	}
	return start(t, cfg)
}

// start does the work of Start for all kinds of server. It tries another port if another process
// takes the port between the check and the bind.
func start(t testing.TB, cfg config) *Server {
	t.Helper()
	program := findProgram(t)
	var err error
	for range 10 {
		s := &Server{t: t, program: program, cfg: cfg}
		if err = s.prepare(); err == nil {
			err = s.launch()
		}
		if err == nil {
			t.Cleanup(s.discard)
			return s
		}
		log := s.Log()
		s.remove()
		if !errors.Is(err, errPortTaken) {
			t.Fatalf("redistest: start %s: %v\n%s", program, err, log)
		}
	}
	t.Fatalf("redistest: start %s: %v", program, err)
	return nil
}

// findProgram returns the path of the server binary, or fails the test with instructions for
// getting one.
func findProgram(t testing.TB) string {
	t.Helper()
	name := os.Getenv("TWOTIER_TEST_REDIS")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		t.Fatalf("redistest: no redis-server: %v\nThese tests need a real one: apt-get install "+
			"redis-server (Debian, Ubuntu), "+
			"dnf install redis or valkey (Fedora), brew install redis (macOS), or set "+
			"TWOTIER_TEST_REDIS to its path.", err)
	}
	return path
}

// prepare makes the directory, chooses a port and writes the files that the server reads.
func (s *Server) prepare() (err error) {
	// t.TempDir won't do: a Unix socket's path is limited to about 100 bytes, and test names are
	// long.
	if s.dir, err = os.MkdirTemp("", "redistest"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if s.port, s.held, err = reserve(s.cfg.cluster); err != nil {
		return err
	}
	s.tls = s.cfg.tlsFiles
	if s.cfg.tls && s.tls.CA == "" {
		if s.tls, err = writeTLSFiles(s.dir); err != nil {
			return err
		}
	}
	if err = os.WriteFile(s.path("redis.conf"), []byte(s.configFile()), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	s.client, err = s.newClient()
	return err
}

// launch starts the process and waits until it is ready.
func (s *Server) launch() error {
	c, err := s.startChild()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()
	if err := s.ready(c); err != nil {
		return errors.Join(err, c.Kill())
	}
	return nil
}

// startChild starts the process with its output appended to the log file.
func (s *Server) startChild() (*child.Child, error) {
	log, err := os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	args := append(append([]string{}, s.cfg.within...), s.program, s.path("redis.conf"))
	args = append(args, s.cfg.args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	return child.Start(cmd)
}

// ready waits until the process answers, and makes sure that it is this process and not another one
// on the same port.
func (s *Server) ready(c *child.Child) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	own := "process_id:" + strconv.Itoa(c.Pid()) + "\r\n"
	err := poll(ctx, func() error {
		if c.Exited() {
			cancel()
			return errors.New("the server ended")
		}
		if err := s.dial(); err != nil {
			return err
		}
		// INFO answers while the data is being loaded, PING doesn't.
		if err := s.Do("PING").Err(); err != nil {
			return err
		}
		info, err := s.Do("INFO", "server").Text()
		if err == nil && !strings.Contains(info, own) {
			err = fmt.Errorf("another process answers: %w", errPortTaken)
		}
		return err
	})
	if err != nil && strings.Contains(s.Log(), "Address already in use") {
		return errPortTaken
	}
	return err
}

// Kill ends the server with SIGKILL and waits until it is gone. It does nothing if the server is
// down.
func (s *Server) Kill() { s.check("kill", s.process().Kill()) }

// Stop ends the server with SIGTERM and waits until it is gone.
func (s *Server) Stop() { s.check("stop", s.process().Terminate(patience)) }

// Pause stops the process (SIGSTOP): connections stay open, the kernel still accepts new ones, and
// nothing is answered.
func (s *Server) Pause() { s.check("pause", s.process().Pause()) }

// Resume continues a paused process (SIGCONT). It then executes the commands that have arrived in
// the meantime.
func (s *Server) Resume() { s.check("resume", s.process().Signal(syscall.SIGCONT)) }

// Restart starts the server again with the same port, directory and configuration. If it is
// running, Restart stops it first. It comes back empty unless it was started with [AOF].
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if !s.process().Exited() {
		s.Stop()
	}
	// The first command to the new process must not use a connection to the old one.
	client, err := s.newClient()
	if err == nil {
		s.mu.Lock()
		s.client, client = client, s.client
		s.mu.Unlock()
		err = errors.Join(client.Close(), s.launch())
	}
	if err != nil {
		t.Fatalf("redistest: restart: %v\n%s", err, s.Log())
	}
}

func (s *Server) process() *child.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

func (s *Server) check(what string, err error) {
	if err != nil {
		s.t.Errorf("redistest: %s %s: %v", what, s.Addr(), err)
	}
}

// discard ends the server at the end of its test.
func (s *Server) discard() {
	s.check("kill", s.process().Kill())
	if s.t.Failed() {
		s.t.Logf("redistest: log of %s:\n%s", s.Addr(), s.Log())
	}
	s.remove()
}

// remove undoes prepare.
func (s *Server) remove() {
	if s.client != nil {
		s.check("close client of", s.client.Close())
	}
	if s.held != nil {
		s.check("give back the port of", s.held.Close())
	}
	s.check("remove directory of", os.RemoveAll(s.dir))
}

// Addr returns host:port, or the path of the Unix socket.
func (s *Server) Addr() string {
	if s.cfg.unix {
		return s.path("sock")
	}
	return s.host() + ":" + strconv.Itoa(s.port)
}

// host returns the address that the server listens on, without the port.
func (s *Server) host() string { return cmp.Or(s.cfg.host, loopback) }

// URL returns the address as redis://, rediss:// or unix://, with user and password if there are
// any.
func (s *Server) URL() string {
	if s.cfg.unix {
		u := url.URL{Scheme: "unix", User: s.userinfo(), Path: s.Addr()}
		return u.String()
	}
	return s.urlOf("", []string{s.Addr()})
}

// urlOf returns a URL of several addresses, with the scheme and the credentials of this server.
func (s *Server) urlOf(schemeSuffix string, addrs []string) string {
	u := url.URL{Scheme: "redis" + schemeSuffix, User: s.userinfo(), Host: strings.Join(addrs, ",")}
	if s.cfg.tls {
		u.Scheme = "rediss" + schemeSuffix
	}
	return u.String()
}

func (s *Server) userinfo() *url.Userinfo {
	if s.cfg.user == "" {
		return nil
	}
	return url.UserPassword(s.cfg.user, s.cfg.pass)
}

// TLS returns the paths of the CA, the certificate and the key; they are empty without the option
// [TLS].
func (s *Server) TLS() TLSFiles { return s.tls }

// Log returns the end of the server's log, across restarts.
func (s *Server) Log() string {
	const last = 16 << 10
	log, err := os.ReadFile(s.path("log"))
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-last):])
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

const (
	// patience bounds everything that a healthy server does immediately. It is long because a
	// machine under load is slow.
	patience = 3 * time.Minute
	// commandTimeout bounds one command of the server's own client.
	commandTimeout = time.Minute
	interval       = 20 * time.Millisecond
)

// poll calls check until it returns nil. If ctx ends first, it returns the last error of check.
func poll(ctx context.Context, check func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// waitFor polls until check returns nil, and ends the test if that takes too long.
func waitFor(t testing.TB, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		t.Fatalf("redistest: %s: not within %v: %v", what, patience, err)
	}
}

// must sends a command and ends the test if it fails.
func must(t testing.TB, s *Server, args ...any) {
	t.Helper()
	if err := s.Do(args...).Err(); err != nil {
		t.Fatalf("redistest: %v at %s: %v", args, s.Addr(), err)
	}
}

// text is must for a command with a text reply, which it returns.
func text(t testing.TB, s *Server, args ...any) string {
	t.Helper()
	reply, err := s.Do(args...).Text()
	if err != nil {
		t.Fatalf("redistest: %v at %s: %v", args, s.Addr(), err)
	}
	return reply
}

// infoHas returns an error unless the reply to a command contains all the given parts.
func infoHas(s *Server, args []any, parts ...string) error {
	info, err := s.Do(args...).Text()
	if err != nil {
		return err
	}
	for _, part := range parts {
		if !strings.Contains(info, part) {
			return fmt.Errorf("%v at %s: no %q in %q", args, s.Addr(), part, info)
		}
	}
	return nil
}
