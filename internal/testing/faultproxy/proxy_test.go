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

func TestSwallowRepliesThenHang(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	send(t, conn, "INCR n\r\n")
	expect(t, conn, ":1\r\n")
	f.proxy.SwallowReplies(false)
	send(t, conn, "INCR n\r\n")
	eventually(t, "a reply is swallowed", func() bool { return f.proxy.Stats().Swallowed == 1 })
	silent(t, conn)
	f.wantStored(2)
	f.proxy.Pass()
	f.mustIncr()
	f.wantStored(3)
	silent(t, conn)
}

func TestSwallowRepliesThenClose(t *testing.T) {
	f := newFixture(t)
	f.mustIncr()
	f.proxy.SwallowReplies(true)
	if err := f.incr(long); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want EOF", err)
	}
	f.wantStored(2)
	if got := f.proxy.Stats().Swallowed; got != 1 {
		t.Errorf("%d replies swallowed, want 1", got)
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

func TestDropRequests(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	send(t, conn, "INCR n\r\n")
	expect(t, conn, ":1\r\n")
	f.proxy.DropRequests()
	send(t, conn, "INCR n\r\n")
	eventually(t, "a request is dropped", func() bool { return f.proxy.Stats().Dropped == 1 })
	silent(t, conn)
	f.proxy.Pass()
	f.mustIncr()
	f.wantStored(2)
}

func TestDroppedConnectionStaysSilent(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	f.proxy.DropRequests()
	send(t, conn, "INCR n\r\n")
	eventually(t, "a request is dropped", func() bool { return f.proxy.Stats().Dropped == 1 })
	f.proxy.Pass()
	send(t, conn, "INCR n\r\n")
	eventually(t, "the next is dropped too", func() bool { return f.proxy.Stats().Dropped == 2 })
	f.wantStored(0)
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

func TestHangKeepsEverything(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	f.proxy.Hang()
	send(t, conn, "INCR n\r\n")
	silent(t, conn)
	f.wantStored(0)
	f.proxy.Pass()
	expect(t, conn, ":1\r\n")
	// Replies are held back too.
	f.server.Pause()
	send(t, conn, "INCR n\r\n")
	eventually(t, "the request has passed", func() bool { return f.proxy.Stats().Requests == 2 })
	f.proxy.Hang()
	f.server.Resume()
	silent(t, conn)
	f.wantStored(2)
	f.proxy.Pass()
	expect(t, conn, ":2\r\n")
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

func TestCutAfter(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	f.proxy.CutAfter(6)
	send(t, conn, "INCR n\r\nINCR n\r\n")
	if got, err := io.ReadAll(conn); string(got) != ":1\r\n:2" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	f.wantStored(2)
	conn = dial(t, f.proxy.Addr())
	send(t, conn, "INCR n\r\n")
	expect(t, conn, ":3\r\n") // each connection has its own count
}

func TestSwallowNext(t *testing.T) {
	f := newFixture(t)
	fired := f.proxy.SwallowNext("incr")
	if err := f.client.Set(t.Context(), "other", 1, 0).Err(); err != nil {
		t.Errorf("a request that doesn't match: %v", err)
	}
	if err := f.incr(long); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want EOF", err)
	}
	wait(t, fired)
	f.wantStored(1)
	f.mustIncr()
	f.wantStored(2)
}

func TestSwallowNextInPipeline(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	fired := f.proxy.SwallowNext("second")
	send(t, conn, "SET first 1\r\nSET second 2\r\nSET third 3\r\n")
	if got, err := io.ReadAll(conn); string(got) != "+OK\r\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	wait(t, fired)
	if n, err := f.server.Do("EXISTS", "first", "second", "third").Int(); n != 3 {
		t.Errorf("%d keys, %v", n, err)
	}
}

func TestSwallowMatching(t *testing.T) {
	f := newFixture(t)
	fired := f.proxy.SwallowMatching("INCR", 3, false)
	var conns [3]net.Conn
	for i := range conns {
		conns[i] = dial(t, f.proxy.Addr())
		send(t, conns[i], "INCR n\r\n")
	}
	wait(t, fired)
	for _, conn := range conns {
		silent(t, conn)
	}
	f.mustIncr()
	f.wantStored(4)
}

func TestSwallowNextReplies(t *testing.T) {
	f := newFixture(t)
	f.mustIncr()
	fired := f.proxy.SwallowNextReplies(1, true)
	if err := f.incr(long); err == nil {
		t.Error("no error")
	}
	wait(t, fired)
	f.mustIncr()
	f.wantStored(3)
}

func TestCutNext(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	fired := f.proxy.CutNext("INCR", 2)
	send(t, conn, "PING\r\nINCR n\r\n")
	if got, err := io.ReadAll(conn); string(got) != "+PONG\r\n:1" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	wait(t, fired)
}

// TestRequestOfAClientThatLeft checks that a request is executed even if the client gives up while
// the server is stopped.
func TestRequestOfAClientThatLeft(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	send(t, conn, "INCR n\r\n")
	expect(t, conn, ":1\r\n")
	f.server.Pause()
	send(t, conn, "INCR n\r\n")
	eventually(t, "the request has passed", func() bool { return f.proxy.Stats().Requests == 2 })
	must.Succeed(t, conn.Close())
	f.server.Resume()
	eventually(t, "the request is executed", func() bool { return f.stored() == 2 })
}

func TestServerThatIsDown(t *testing.T) {
	f := newFixture(t)
	f.mustIncr()
	f.server.Kill()
	if err := f.incr(long); err == nil {
		t.Error("no error")
	}
	if err := newClient(t, f.proxy.Addr()).Ping(t.Context()).Err(); err == nil {
		t.Error("no error on a new connection")
	}
	f.server.Restart(t)
	if err := newClient(t, f.proxy.Addr()).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestHungClientDoesNotHearOfTheServersEnd(t *testing.T) {
	f := newFixture(t)
	conn := dial(t, f.proxy.Addr())
	f.proxy.SwallowReplies(false)
	send(t, conn, "INCR n\r\n")
	eventually(t, "the reply is swallowed", func() bool { return f.proxy.Stats().Swallowed == 1 })
	f.server.Kill()
	silent(t, conn)
}

func TestRaw(t *testing.T) {
	s := redistest.Start(t, redistest.UnixSocket())
	p := faultproxy.NewRaw(t, s.Addr())
	conn := dial(t, p.Addr())
	send(t, conn, "INCR n\r\n")
	expect(t, conn, ":1\r\n")
	fired := p.SwallowNext("INCR")
	send(t, conn, "INCR n\r\n")
	if got, err := io.ReadAll(conn); len(got) > 0 || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	wait(t, fired)
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

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(long)))
	buf := make([]byte, len(want))
	if n, err := io.ReadFull(conn, buf); err != nil || string(buf) != want {
		t.Fatalf("got %q, %v, want %q", buf[:n], err, want)
	}
}

// silent checks that nothing arrives for a short time, not even the end of the stream.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(short)))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want silence", n, err)
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
