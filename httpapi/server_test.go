package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/testca"
)

// open starts a server on a free port. At the end of the test it is closed and checked for leaks.
func open(t *testing.T, o httpapi.Options) (*httpapi.Server, string) {
	t.Helper()
	before := runtime.NumGoroutine()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	s, err := httpapi.New(o)
	must.Succeed(t, err)
	must.Succeed(t, s.Open(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for range 2 {
			if err := s.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		noLeak(t, before)
	})
	return s, s.Addr().String()
}

// noLeak waits until no more goroutines run than before. Goroutines of clients take a moment to
// end.
func noLeak(t *testing.T, before int) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(12 * time.Second); runtime.NumGoroutine() > before; time.Sleep(
		time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("goroutines leaked:\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// dial connects, with a deadline of ten seconds for everything.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must.Succeed(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func rawAdd(body string) string {
	return fmt.Sprintf("POST /v1/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
		len(body), body)
}

// answer reads one response.
func answer(t *testing.T, r *bufio.Reader) (int, string) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	must.Succeed(t, err)
	body, err := io.ReadAll(res.Body)
	must.Succeed(t, err)
	return res.StatusCode, string(body)
}

// send sends a text on a new connection, and returns the answer.
func send(t *testing.T, addr, text string) (int, string) {
	t.Helper()
	c := dial(t, addr)
	_, _ = io.WriteString(c, text)
	return answer(t, bufio.NewReader(c))
}

func TestKeepAliveAndPipelining(t *testing.T) {
	f := newFake()
	_, addr := open(t, httpapi.Options{Service: f})
	c := dial(t, addr)
	r := bufio.NewReader(c)
	for range 3 { // one at a time
		fmt.Fprint(c, rawAdd(`{"key":"a"}`))
		if code, body := answer(t, r); code != 200 {
			t.Fatal(code, body)
		}
	}
	fmt.Fprint(c, strings.Repeat(rawAdd(`{"key":"a"}`), 100)) // all at once
	for range 100 {
		if code, body := answer(t, r); code != 200 {
			t.Fatal(code, body)
		}
	}
	if got := f.get("a"); got != 103 {
		t.Errorf("counted %d, want 103", got)
	}
}

func TestListensOnIPv6(t *testing.T) {
	if ln, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6 here")
	} else {
		ln.Close()
	}
	_, addr := open(t, httpapi.Options{Service: newFake(), Listen: "[::1]:0"})
	res, err := http.Get("http://" + addr + "/healthz")
	must.Succeed(t, err)
	res.Body.Close()
}

func TestTooLargeBodiesAreAnswered(t *testing.T) {
	f := newFake()
	_, addr := open(t, httpapi.Options{Service: f})
	tests := []struct {
		path  string
		pad   int
		after int
	}{
		{"/v1/add", 64<<10 - 11, 200},
		{"/v1/add", 64<<10 - 10, 413},
		{"/v1/add", 8 << 20, 413},
		{"/v1/batch", 1<<20 - 10, 200},
		{"/v1/batch", 1 << 20, 413},
		{"/v1/batch", 8 << 20, 413},
		{"/peer", 8 << 20, 404}, // without peers there is no such path: the body is not read
	}
	for _, tt := range tests {
		body := `{"key":"k"}` + strings.Repeat(" ", tt.pad)
		if tt.path == "/v1/batch" {
			body = `{"ops":[]}` + strings.Repeat(" ", tt.pad)
		}
		res, err := http.Post("http://"+addr+tt.path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Errorf("%s %d: %v", tt.path, tt.pad, err)
			continue
		}
		got, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != tt.after {
			t.Errorf("%s %d: %d %s", tt.path, tt.pad, res.StatusCode, got)
		}
	}
}

// TestBadClientsDisturbNobody sends garbage, halves and nothing on some connections while another
// one works.
func TestBadClientsDisturbNobody(t *testing.T) {
	f := newFake()
	_, addr := open(t, httpapi.Options{Service: f,
		Limits: listener.Limits{ReadTimeout: 300 * time.Millisecond}})
	tests := []struct{ name, send, status string }{
		{"garbage", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
		{"long line", "GET /" + strings.Repeat("a", 70_000) + " HTTP/1.1\r\n\r\n", "431"},
		{"long header", "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 70_000) +
			"\r\n\r\n", "431"},
		{"half a header", "POST /v1/add HTTP/1.1\r\nHos", "408"},
		{"half a body", "POST /v1/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
			"100\r\n\r\n{\"key\":", "408"},
		{"nothing", "", "408"},
		{"bad chunks", "POST /v1/add HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"chunked\r\n\r\nxyz\r\n", "400"},
		{"bad length", "POST /v1/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
			"400"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := dial(t, addr)
			fmt.Fprint(bad, tt.send)
			if code, body := send(t, addr, rawAdd(`{"key":"good"}`)); code != 200 {
				t.Errorf("others got %d %s", code, body)
			}
			got, err := io.ReadAll(bad)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+tt.status) ||
				!strings.Contains(string(got), "application/problem+json") {
				t.Errorf("got %q, %v, want %s", got, err, tt.status)
			}
		})
	}
	if got := f.get("good"); got != int64(len(tests)) {
		t.Errorf("counted %d", got)
	}
}

// TestClientThatNeverReads sends requests until the answers fill every buffer on the way. Then it
// is cut off.
func TestClientThatNeverReads(t *testing.T) {
	_, addr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{WriteTimeout: 100 * time.Millisecond}})
	c := dial(t, addr)
	many := []byte(strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 100))
	for {
		if _, err := c.Write(many); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("not cut off")
		} else if err != nil {
			return
		}
	}
}

func TestPanicIsAnswered(t *testing.T) {
	var log bytes.Buffer
	f := newFake()
	f.fault = func(context.Context) error { panic("a bug") }
	_, addr := open(t, httpapi.Options{Service: f,
		Limits: listener.Limits{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	if code, body := send(t, addr, rawAdd(`{"key":"k"}`)); code != 500 || strings.Contains(body, "a bug") {
		t.Errorf("%d %s", code, body)
	}
	res, err := http.Get("http://" + addr + "/healthz")
	must.Succeed(t, err)
	res.Body.Close()
	if n := strings.Count(log.String(), "a bug"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

// TestCloseFinishesRequests closes while one request is being executed, one has half arrived, one
// connection is idle and one has never sent anything.
func TestCloseFinishesRequests(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	f := newFake()
	var first atomic.Bool
	f.fault = func(context.Context) error {
		if first.CompareAndSwap(false, true) {
			close(entered)
			<-release
		}
		return nil
	}
	s, addr := open(t, httpapi.Options{Service: f})
	busy, half, idle, fresh := dial(t, addr), dial(t, addr), dial(t, addr), dial(t, addr)
	fmt.Fprint(busy, rawAdd(`{"key":"busy"}`))
	<-entered
	one := s.Awake() // what a connection takes once a request has begun
	whole := rawAdd(`{"key":"half"}`)
	fmt.Fprint(half, whole[:len(whole)-4])
	eventually(t, func() bool { return s.Awake() == 2*one }, "the half arrives")
	idleReader := bufio.NewReader(idle)
	fmt.Fprint(idle, rawAdd(`{"key":"idle"}`))
	answer(t, idleReader)

	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	if _, err := idleReader.ReadByte(); err != io.EOF {
		t.Errorf("idle: %v", err)
	}
	if _, err := io.ReadAll(fresh); err != nil {
		t.Errorf("fresh: %v", err)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("still accepting")
	}
	select {
	case err := <-closed:
		t.Fatalf("closed before the request was answered: %v", err)
	default:
	}
	fmt.Fprint(half, whole[len(whole)-4:])
	if code, body := answer(t, bufio.NewReader(half)); code != 200 {
		t.Error(code, body)
	}
	close(release)
	if code, body := answer(t, bufio.NewReader(busy)); code != 200 {
		t.Error(code, body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if f.get("busy") != 1 || f.get("half") != 1 {
		t.Error("not counted")
	}
}

// TestCloseDoesNotWaitForReaders closes servers, one of them with TLS, while a client does not read
// its answers. It is cut off before the time is up, and that is no error.
func TestCloseDoesNotWaitForReaders(t *testing.T) {
	server, client, err := testca.Pair()
	must.Succeed(t, err)
	plain, addr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{WriteTimeout: time.Minute}})
	secure, tlsAddr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{WriteTimeout: time.Minute, TLS: server}})
	many := []byte(strings.Repeat("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000))
	for _, c := range []net.Conn{dial(t, addr), tls.Client(dial(t, tlsAddr), client)} {
		for err = nil; err == nil; _, err = c.Write(many) {
			_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	closed := make(chan error)
	go func() { closed <- secure.Close(ctx) }()
	if err := errors.Join(plain.Close(ctx), <-closed); err != nil {
		t.Errorf("the stop waited: %v", err)
	}
}

func TestCloseCutsWhatDoesNotEnd(t *testing.T) {
	f := newFake()
	entered := make(chan struct{})
	f.fault = func(ctx context.Context) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}
	s := serverOf(t, httpapi.Options{Service: f, Listen: "127.0.0.1:0",
		Limits: listener.Limits{RequestTimeout: 200 * time.Millisecond}})
	must.Succeed(t, s.Open(t.Context()))
	fmt.Fprint(dial(t, s.Addr().String()), rawAdd(`{"key":"k"}`))
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := s.Open(t.Context()); !errors.Is(err, httpapi.ErrOpened) {
		t.Errorf("opened again: %v", err)
	}
}

func TestRequestTimeout(t *testing.T) {
	f := newFake()
	f.fault = func(ctx context.Context) error {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		<-child.Done()
		return child.Err()
	}
	s := serverOf(t, httpapi.Options{Service: f,
		Limits: listener.Limits{RequestTimeout: 20 * time.Millisecond}})
	status(t, call(s, "POST /v1/add", `{"key":"k"}`), 503, `"outcome":"unknown"`)
}

func TestOptions(t *testing.T) {
	for _, o := range []httpapi.Options{{},
		{Service: newFake(), Limits: listener.Limits{MaxConns: -1}},
		{Service: newFake(), Limits: listener.Limits{ReadTimeout: -1}}} {
		if _, err := httpapi.New(o); err == nil {
			t.Errorf("%+v: accepted", o)
		}
	}
	s := newServer(t, newFake())
	if s.Addr() != nil {
		t.Error("an address before Open")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
