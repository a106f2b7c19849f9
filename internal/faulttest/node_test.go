package faulttest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that a healthy system does soon.
const patience = 40 * time.Second

// until polls until the condition holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	untilNil(t, what, func() error {
		if !holds() {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// untilNil polls until check returns nil.
func untilNil(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wait waits for a channel to be closed.
func wait(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// logBuffer collects what a process writes to stderr.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serving is one twotier process.
type serving struct {
	t      testing.TB
	cmd    *exec.Cmd
	base   string
	listen string
	log    logBuffer
	http   *http.Client
	done   chan struct{} // closed once the process has been reaped
}

// serve starts twotier serve with these flags and waits until it is ready. environ is added to the environment.
func serve(t testing.TB, environ []string, args ...string) *serving {
	t.Helper()
	s, err := tryServe(t, environ, args...)
	if err != nil {
		t.Fatalf("twotier serve: %v\n%s", err, s.log.String())
	}
	return s
}

func tryServe(t testing.TB, environ []string, args ...string) (*serving, error) {
	t.Helper()
	s := &serving{t: t, http: newClient(), done: make(chan struct{})}
	s.cmd = exec.Command(program(t), append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Env = append(os.Environ(), environ...)
	s.cmd.Stderr = &s.log
	s.cmd.SysProcAttr = dieWithParent()
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout = w
	started := make(chan error, 1)
	go s.runChild(started)
	err = <-started
	w.Close()
	if err != nil {
		stdout.Close()
		return s, err
	}
	t.Cleanup(func() { s.discard(); stdout.Close() })
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		var ready struct {
			Ready  bool
			Listen string
		}
		if err := json.Unmarshal([]byte(text), &ready); err != nil || !ready.Ready {
			return s, fmt.Errorf("no ready line: %q", text)
		}
		s.listen, s.base = ready.Listen, "http://"+ready.Listen
		return s, nil
	case <-time.After(patience):
		return s, fmt.Errorf("not ready within %v", patience)
	}
}

// runChild starts and reaps the process on one thread: the kernel sends the parent-death signal when that thread ends.
func (s *serving) runChild(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)
	err := s.cmd.Start()
	started <- err
	if err == nil {
		_ = s.cmd.Wait() // the status is looked up where it matters
	}
}

// kill ends the process with SIGKILL.
func (s *serving) kill() {
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.done
}

// stop sends SIGTERM and returns the exit status.
func (s *serving) stop() int {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Errorf("SIGTERM: %v", err)
	}
	wait(s.t, "the process ends after SIGTERM", s.done)
	return s.cmd.ProcessState.ExitCode()
}

// discard ends the process with its test, and fails the test if the process has seen a race, a panic or an internal error.
func (s *serving) discard() {
	s.kill()
	s.http.CloseIdleConnections()
	text := s.log.String()
	for _, bad := range []string{"DATA RACE", "panic:", "goroutine 1 [", "level=ERROR", "fatal error:"} {
		if strings.Contains(text, bad) {
			s.t.Errorf("the node's log has %q", bad)
		}
	}
	if s.t.Failed() {
		s.t.Logf("log of the node:\n%s", text[max(0, len(text)-8<<10):])
	}
}

func newClient() *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, DisableCompression: true, Proxy: nil,
	}}
}

// get returns status and body.
func (s *serving) get(path string) (int, []byte) {
	s.t.Helper()
	res, err := s.http.Get(s.base + path)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	return res.StatusCode, body
}

// post returns status and body; the error is that of the transport.
func (s *serving) post(path, body string) (int, []byte, error) {
	res, err := s.http.Post(s.base+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	return res.StatusCode, out, err
}

// mustPost is post of what has to succeed.
func (s *serving) mustPost(path, body string) []byte {
	s.t.Helper()
	status, out, err := s.post(path, body)
	if err != nil || status != http.StatusOK {
		s.t.Fatalf("POST %s %s: %d %s %v", path, body, status, out, err)
	}
	return out
}

// metric returns the sum of all samples of a metric whose labels contain the given text.
func (s *serving) metric(name, labels string) int64 {
	s.t.Helper()
	_, body := s.get("/metrics")
	sum, found := 0.0, false
	for line := range strings.Lines(string(body)) {
		sample, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		base, its, _ := strings.Cut(sample, "{")
		if !ok || base != name || !strings.Contains(its, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.t.Fatalf("metric %s: %v", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		s.t.Fatalf("there is no metric %s{%s}", name, labels)
	}
	return int64(sum)
}

func (s *serving) pending() int64 { s.t.Helper(); return s.metric("twotier_pending_buckets", "") }

func (s *serving) flushed() {
	s.t.Helper()
	until(s.t, "nothing is pending", func() bool { return s.pending() == 0 })
}

// answer is what of an answer tests look at.
type answer struct {
	Key      string
	Allowed  bool
	Source   string
	Degraded bool
	Counts   []struct{ Count, Min, Max int64 }
	Retry    int64  `json:"retry_after_ms"`
	Outcome  string `json:"outcome"`
	Error    *struct {
		Status  int
		Detail  string
		Outcome string
	}
}

func (s *serving) count(key, window string) answer {
	s.t.Helper()
	status, body := s.get("/v1/count?key=" + url.QueryEscape(key) + "&window=" + window)
	var a answer
	if err := json.Unmarshal(body, &a); err != nil || status != http.StatusOK || len(a.Counts) != 1 {
		s.t.Fatalf("count %s: %d %s %v", key, status, body, err)
	}
	return a
}

// ready returns the status and the body of /readyz.
func (s *serving) ready() (int, string) {
	s.t.Helper()
	status, body := s.get("/readyz")
	return status, string(body)
}
