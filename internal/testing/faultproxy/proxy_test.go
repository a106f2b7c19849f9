package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

const (
	short = 100 * time.Millisecond // to check that nothing comes
	long  = 10 * time.Second       // for messages that must arrive
)

func wait(t *testing.T, fired <-chan struct{}) {
	t.Helper()
	select {
	case <-fired:
	case <-time.After(long):
		t.Fatal("the fault has not happened")
	}
}

// TestFaults sends a request in each mode: it is executed or not, and its client reads an answer, a
// part of one, the end of the connection, or nothing at all, also once the mode has ended.
func TestFaults(t *testing.T) {
	s := redistest.Start(t)
	const silence, end = "silence", "end"
	type faulty = *faultproxy.Proxy
	for name, tt := range map[string]struct {
		fault        func(p faulty) (fired <-chan struct{})
		want, passed string // while the fault lasts, and afterwards
		stored       int
	}{
		"none":         {mode(faulty.Pass), ":1\r\n", silence, 1},
		"reply lost":   {mode(func(p faulty) { p.SwallowReplies(false) }), silence, silence, 1},
		"hang up":      {mode(func(p faulty) { p.SwallowReplies(true) }), end, end, 1},
		"request lost": {mode(faulty.DropRequests), silence, silence, 0},
		"hang":         {mode(faulty.Hang), silence, ":1\r\n", 1},
		"slow reply":   {mode(func(p faulty) { p.Delay(time.Hour) }), silence, ":1\r\n", 1},
		"half a reply": {mode(func(p faulty) { p.CutAfter(2) }), ":1" + end, end, 1},
		"next reply": {func(p faulty) <-chan struct{} { return p.SwallowNext("INCR") },
			end, end, 1},
		"half the next": {func(p faulty) <-chan struct{} { return p.CutNext("INCR", 2) },
			":1" + end, end, 1},
		"matching reply": {func(p faulty) <-chan struct{} {
			return p.SwallowMatching("INCR", 1, false)
		}, silence, silence, 1},
		"any reply": {func(p faulty) <-chan struct{} { return p.SwallowMatching("", 1, true) },
			end, end, 1},
	} {
		for raw, open := range map[bool]func(testing.TB, string) faulty{false: faultproxy.New,
			true: faultproxy.NewRaw} {
			must.Succeed(t, s.Do("DEL", "n").Err())
			p := open(t, s.Addr())
			conn := dial(t, p.Addr())
			fired := tt.fault(p)
			send(t, conn, "INCR n\r\n")
			if got := reads(t, conn); got != tt.want {
				t.Errorf("%s, raw %v: read %q, want %q", name, raw, got, tt.want)
			}
			wait(t, fired)
			p.Pass()
			if got := reads(t, conn); got != tt.passed {
				t.Errorf("%s, raw %v, afterwards: read %q, want %q", name, raw, got, tt.passed)
			}
			if n, _ := s.Do("GET", "n").Int(); n != tt.stored {
				t.Errorf("%s, raw %v: the server has counted %d, want %d", name, raw, n, tt.stored)
			}
		}
	}
}

// mode returns a fault that begins at once.
func mode(set func(*faultproxy.Proxy)) func(*faultproxy.Proxy) <-chan struct{} {
	return func(p *faultproxy.Proxy) <-chan struct{} {
		set(p)
		fired := make(chan struct{})
		close(fired)
		return fired
	}
}

// reads returns what arrives in a short time, with "end" behind it at the end of the stream, or
// "silence".
func reads(t *testing.T, conn net.Conn) string {
	t.Helper()
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(short)))
	got, err := io.ReadAll(conn)
	switch {
	case err == nil:
		return string(got) + "end"
	case !errors.Is(err, os.ErrDeadlineExceeded):
		t.Fatal(err)
	case len(got) == 0:
		return "silence"
	}
	return string(got)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, request string) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
}
