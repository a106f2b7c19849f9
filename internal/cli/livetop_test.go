//go:build linux

package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"twotier.dev/twotier/internal/cli"
)

// terminal is a pseudo-terminal: the command's end, and the user's screen and keyboard.
type terminal struct {
	*os.File // of the command
	master   *os.File

	mu    sync.Mutex
	shown string
}

func openTerminal(t *testing.T, width, height uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &terminal{File: file, master: master}
	p.resize(t, width, height)
	go p.runReader()
	t.Cleanup(func() {
		_ = file.Close()
		_ = master.Close()
	})
	return p
}

func (p *terminal) runReader() {
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		p.mu.Lock()
		p.shown += string(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *terminal) resize(t *testing.T, width, height uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
}

func (p *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(p.master, keys); err != nil {
		t.Fatal(err)
	}
}

func (p *terminal) state(t *testing.T) unix.Termios {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(p.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *state
}

// picture returns the lines of the last complete picture.
func (p *terminal) picture() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.shown
	end := strings.LastIndex(text, "\x1b[J")
	if end < 0 {
		return nil
	}
	start := strings.LastIndex(text[:end], "\x1b[H")
	return strings.Split(strings.ReplaceAll(text[start+len("\x1b[H"):end], "\x1b[K", ""), "\r\n")
}

// await waits until the picture meets a condition.
func (p *terminal) await(t *testing.T, what string, ok func(lines []string) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(p.picture()); {
		if time.Now().After(end) {
			t.Fatalf("%s: not seen, but\n%s", what, strings.Join(p.picture(), "\n"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitRows waits until the table has rows that begin with these.
func (p *terminal) awaitRows(t *testing.T, rows ...string) {
	t.Helper()
	p.await(t, strings.Join(rows, ", "), func(lines []string) bool {
		for i, line := range lines {
			if strings.Contains(line, "EVENTS") && len(lines) > i+len(rows) {
				for k, row := range rows {
					if !strings.HasPrefix(strings.Join(strings.Fields(lines[i+1+k]), " "), row) {
						return false
					}
				}
				return true
			}
		}
		return false
	})
}

// topServer is a cluster of two nodes with three keys. fails makes it answer 503.
type topServer struct {
	mu    sync.Mutex
	fails bool
}

func (s *topServer) set(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

func (s *topServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		http.Error(w, "{}", http.StatusServiceUnavailable)
		return
	}
	q := r.URL.Query()
	answer := ""
	switch r.URL.Path {
	case "/v1/cluster":
		answer = `{"mode":"two-tier","members":[{"id":"node-a","state":"alive"},` +
			`{"id":"node-b","state":"suspect"}]}`
	case "/v1/count":
		counts := map[string]int{"@all/allowed": 1230, "@all/refused": 45}
		answer = fmt.Sprintf(`{"counts":[{"window":"10s","count":%d}]}`, counts[q.Get("key")])
	case "/v1/top":
		answer = `{"keys":[{"ns":"login","key":"busy","count":70},` +
			`{"ns":"login","key":"calm\u001b[31m","count":20}]}`
		switch {
		case q.Has("by"):
			answer = `{"keys":[{"ns":"default","key":"angry","count":9},` +
				`{"ns":"login","key":"busy","count":3}]}`
		case q.Get("window") == "1h":
			answer = `{"keys":[{"ns":"login","key":"busy","count":700}]}`
		}
	}
	_, _ = io.WriteString(w, answer)
}

// live runs twotier top on a terminal and returns a function that waits for its end, after which
// the terminal must be restored.
func live(ctx context.Context, t *testing.T, p *terminal, server string,
	args ...string) (end func()) {
	t.Helper()
	before := p.state(t)
	done := make(chan error, 1)
	go func() {
		o := cli.IO{Environ: []string{"TWOTIER_SERVER=" + server}, Stdin: p.File, Stdout: p.File,
			Stderr: io.Discard}
		_, err := execute(ctx, o, append([]string{"top"}, args...))
		done <- err
	}()
	return func() {
		t.Helper()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
		if after := p.state(t); !reflect.DeepEqual(after, before) {
			t.Errorf("the terminal is %+v, and was %+v", after, before)
		}
		p.await(t, "the end", func([]string) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return strings.HasSuffix(p.shown, "\x1b[?7h\x1b[?25h\x1b[?1049l")
		})
	}
}

func has(text string) func(lines []string) bool {
	return func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), text) }
}

func TestLiveTop(t *testing.T) {
	service := &topServer{}
	web := httptest.NewServer(service)
	defer web.Close()
	p := openTerminal(t, 100, 20)
	end := live(t.Context(), t, p, web.URL)
	p.awaitRows(t, "70 3 login busy", `20 - login "calm\x1b[31m"`, "- 9 default angry")
	for _, text := range []string{"2 members, two-tier: node-a node-b", "node-b suspect",
		"a second: 123.0 allowed, 4.5 refused, 0.0 in shadow", "last 1m by events", web.URL} {
		p.await(t, text, has(text))
	}
	p.press(t, "r")
	p.awaitRows(t, "- 9 default angry", "70 3 login busy")
	p.press(t, "\x1b[A") // an arrow, which means nothing
	p.press(t, "k")
	p.awaitRows(t, "- 9 default angry", "70 3 login busy", `20 - login "calm`)
	p.press(t, "cw")
	p.awaitRows(t, "700 3 login busy", "- 9 default angry")

	service.set(true)
	p.await(t, "the failure", has("as of "))
	p.awaitRows(t, "700 3 login busy")
	service.set(false)
	p.await(t, "no failure", func(lines []string) bool { return !has("as of ")(lines) })

	p.resize(t, 30, 6)
	p.await(t, "the narrow form", func(lines []string) bool {
		return len(lines) == 6 && !has("NAMESPACE")(lines) && !has(web.URL)(lines) &&
			has("busy")(lines)
	})
	p.resize(t, 1, 1)
	p.await(t, "one line", func(lines []string) bool { return len(lines) == 1 })
	p.press(t, "q")
	end()
}

// The ways to end it: q; Ctrl-C, which a terminal in raw mode sends as a byte; and the end of its
// context, which is how a signal arrives. None waits for a server.
func TestLiveTopEnds(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, p *terminal, cancel func()){
		"Ctrl-C":   func(t *testing.T, p *terminal, _ func()) { p.press(t, "\x03") },
		"q":        func(t *testing.T, p *terminal, _ func()) { p.press(t, "q") },
		"a signal": func(_ *testing.T, _ *terminal, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 100)
			web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
				r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
			}))
			defer web.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := openTerminal(t, 80, 24)
			end := live(ctx, t, p, web.URL, "--by", "refused", "--timeout", "10m")
			<-asked
			p.await(t, "a picture", has("by refused"))
			act(t, p, cancel)
			end()
		})
	}
}

// On a terminal --once and --json print one list, as does a terminal that is dumb.
func TestTopOnce(t *testing.T) {
	web := httptest.NewServer(&topServer{})
	defer web.Close()
	for _, c := range []struct{ flag, environ string }{{"--once", ""}, {"--json", ""},
		{"-n=20", "TERM=dumb"}} {
		p := openTerminal(t, 80, 24)
		o := cli.IO{Environ: []string{"TWOTIER_SERVER=" + web.URL, c.environ}, Stdin: p.File,
			Stdout: p.File, Stderr: io.Discard}
		if _, err := execute(t.Context(), o, []string{"top", c.flag}); err != nil {
			t.Error(err)
		}
		p.await(t, "the list", func([]string) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return strings.Contains(p.shown, "busy") && !strings.Contains(p.shown, "\x1b[H")
		})
	}
}
