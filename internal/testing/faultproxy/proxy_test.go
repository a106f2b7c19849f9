package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// fixture is a client that reaches a real server through a proxy.
type fixture struct {
	*testing.T
	server *redistest.Server
	proxy  *faultproxy.Proxy
	client *redis.Client
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Addr())
	return fixture{t, s, p, newClient(t, p.Addr())}
}

func newClient(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// incr counts through the proxy, waiting for the answer for at most the given time.
func (f fixture) incr(wait time.Duration) error {
	ctx, cancel := context.WithTimeout(f.Context(), wait)
	defer cancel()
	return f.client.Incr(ctx, "n").Err()
}

func (f fixture) mustIncr() {
	f.Helper()
	if err := f.incr(10 * time.Second); err != nil {
		f.Fatalf("INCR: %v", err)
	}
}

// stored reads the count directly from the server.
func (f fixture) stored() int {
	f.Helper()
	n, err := f.server.Do("GET", "n").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.Fatal(err)
	}
	return n
}

func (f fixture) wantStored(want int) {
	f.Helper()
	if got := f.stored(); got != want {
		f.Errorf("the server has counted %d, want %d", got, want)
	}
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

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

func TestPass(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		f.mustIncr()
	}
	pipe := f.client.Pipeline()
	for range 1000 {
		pipe.Incr(t.Context(), "n")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantStored(1003)
	big := strings.Repeat("x", 1<<20)
	must.Succeed(t, f.client.Set(t.Context(), "big", big, 0).Err())
	if got := f.client.Get(t.Context(), "big").Val(); got != big {
		t.Errorf("%d bytes came back, want %d", len(got), len(big))
	}
	got := f.proxy.Stats()
	if got.Accepted < 1 || got.Open != got.Accepted || got.Requests != got.Replies ||
		got.Requests < 1005 ||
		got.BytesUp < 1<<20 || got.BytesDown < 1<<20 || got.Dropped+got.Swallowed+got.Refused != 0 {
		t.Errorf("%+v", got)
	}
}

func TestSwallowedPipelineIsExecutedToTheEnd(t *testing.T) {
	f := newFixture(t)
	f.mustIncr()
	f.proxy.SwallowReplies(true)
	pipe := f.client.Pipeline()
	for range 5000 {
		pipe.Incr(t.Context(), "n")
	}
	if _, err := pipe.Exec(t.Context()); err == nil {
		t.Error("no error")
	}
	eventually(t, "the whole pipeline is executed", func() bool { return f.stored() == 5001 })
}

func TestRefuse(t *testing.T) {
	f := newFixture(t)
	f.mustIncr()
	f.proxy.Refuse()
	f.mustIncr() // the existing connection still works
	if err := newClient(t, f.proxy.Addr()).Ping(t.Context()).Err(); err == nil {
		t.Error("a new connection works")
	}
	f.proxy.CloseAll()
	if err := f.incr(long); err == nil {
		t.Error("the connection is still there")
	}
	if got := f.proxy.Stats(); got.Refused < 2 {
		t.Errorf("%+v", got)
	}
}

func TestDelay(t *testing.T) {
	f := newFixture(t)
	f.mustIncr()
	f.proxy.Delay(short)
	start := time.Now()
	f.mustIncr()
	if d := time.Since(start); d < short {
		t.Errorf("the reply came after %v", d)
	}
	const longer = 200 * time.Millisecond
	f.proxy.Delay(longer)
	start = time.Now()
	pipe := f.client.Pipeline()
	for range 100 {
		pipe.Incr(t.Context(), "n")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d >= 100*longer { // the time if each were delayed separately
		t.Errorf("a pipeline of 100 took %v", d)
	}
	f.proxy.Delay(time.Hour)
	result := make(chan error, 1)
	go func() { result <- f.incr(long) }()
	eventually(t, "the request has been executed", func() bool { return f.stored() == 103 })
	f.proxy.Pass()
	if err := <-result; err != nil {
		t.Errorf("after the delay: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := redistest.Start(t)
	before := runtime.NumGoroutine()
	for _, setMode := range []func(*faultproxy.Proxy){
		(*faultproxy.Proxy).Pass,
		(*faultproxy.Proxy).Hang,
		(*faultproxy.Proxy).DropRequests,
		func(p *faultproxy.Proxy) { p.Delay(time.Hour) },
		func(p *faultproxy.Proxy) { p.SwallowReplies(false) },
	} {
		p := faultproxy.New(t, s.Addr())
		setMode(p)
		for range 5 {
			send(t, dial(t, p.Addr()), "PING\r\n")
		}
		eventually(t, "connections are accepted", func() bool { return p.Stats().Accepted == 5 })
		p.Close()
		p.Close()
		if got := p.Stats().Open; got != 0 {
			t.Errorf("%d connections are open", got)
		}
	}
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
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
		"any reply": {func(p faulty) <-chan struct{} { return p.SwallowNextReplies(1, true) },
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

// TestModesUnderLoad switches modes under load, for the race detector, and checks that nothing was
// counted twice.
func TestModesUnderLoad(t *testing.T) {
	f := newFixture(t)
	type tally struct{ sent, acked int }
	results := make(chan tally)
	stop := make(chan struct{})
	const workers = 4
	for range workers {
		go func() {
			var n tally
			defer func() { results <- n }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				n.sent++
				if f.incr(20*time.Millisecond) == nil {
					n.acked++
				}
			}
		}()
	}
	p := f.proxy
	for range 5 {
		for _, setMode := range []func(){
			p.Pass, p.DropRequests, p.Pass, p.Refuse, p.CloseAll, p.Pass, p.Hang,
			func() { p.SwallowReplies(true) }, p.Pass, func() { p.SwallowReplies(false) }, p.Pass,
			func() { p.CutAfter(100) }, func() { p.Delay(time.Millisecond) },
			func() { p.SwallowNext("incr") }, func() { p.CutNext("incr", 1) },
		} {
			setMode()
			time.Sleep(2 * time.Millisecond)
		}
	}
	p.Pass()
	close(stop)
	var total tally
	for range workers {
		n := <-results
		total.sent, total.acked = total.sent+n.sent, total.acked+n.acked
	}
	// Requests that a client has given up on may still be on their way to the server.
	f.client.Close()
	eventually(t, "connections are closed", func() bool { return p.Stats().Open == 0 })
	if got := f.stored(); got < total.acked || got > total.sent {
		t.Errorf("the server has counted %d; sent %d, acknowledged %d", got, total.sent,
			total.acked)
	}
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

// TestShiftTime checks that only the replies to TIME change.
func TestShiftTime(t *testing.T) {
	f := newFixture(t)
	for _, by := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour,
		1500 * time.Millisecond} {
		f.proxy.ShiftTime(by)
		before := time.Now()
		pipe := f.client.Pipeline()
		told, set, got := pipe.Time(f.Context()), pipe.Set(f.Context(), "k", "v", 0),
			pipe.Get(f.Context(), "k")
		if _, err := pipe.Exec(f.Context()); err != nil {
			t.Fatal(err)
		}
		lie := told.Val().Add(-by)
		if lie.Before(before.Add(-time.Second)) || lie.After(time.Now().Add(time.Second)) {
			t.Errorf("shifted by %v: %v, %v beside the truth", by, told.Val(), lie.Sub(before))
		}
		if set.Val() != "OK" || got.Val() != "v" {
			t.Errorf("other replies are %q and %q", set.Val(), got.Val())
		}
	}
}
