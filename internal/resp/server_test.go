package resp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/testca"
	"twotier.dev/twotier/internal/token"
)

// tokensOf returns tokens by name, and a store that holds them.
func tokensOf(t *testing.T, lines map[string]string) (map[string]string, *token.Store) {
	t.Helper()
	texts, file := map[string]string{}, ""
	for name, rights := range lines {
		text, hash := token.New()
		texts[name] = text
		file += name + " " + hash + " " + rights + "\n"
	}
	store := new(token.Store)
	must.Succeed(t, store.Load([]byte(file)))
	return texts, store
}

func TestTokens(t *testing.T) {
	const master = "a-token-of-the-command-line"
	texts, store := tokensOf(t, map[string]string{"writer": "count default", "reader": "read"})
	server := serve(t, resp.Options{Service: newService(t), Tokens: store, AdminToken: master})
	c := dial(t, server)
	c.expect([][2]string{
		{"PING", "-NOAUTH Authentication required."},
		{"TT.ADD k", "-NOAUTH Authentication required."},
		{"NONSENSE", "-NOAUTH Authentication required."},
		{"HELLO 3", "-NOAUTH HELLO must be called"},
		{"AUTH wrong", "-WRONGPASS invalid token"},
		{"AUTH reader " + texts["writer"], "-WRONGPASS invalid token"},
		{"HELLO 3 AUTH default wrong", "-WRONGPASS invalid token"},
		{"TT.ADD k", "-NOAUTH Authentication required."},
		{"HELLO 3 AUTH default " + texts["writer"], "{server twotier version 7.0.0 proto 3 " +
			"id 1 mode standalone role master modules []}"},
		{"TT.ADD k", "OK"},
		{"CL.THROTTLE k 1 1 1", "[0 2 0 -1 2]"},
		{"CL.THROTTLE k 1 1 1 0", "-NOPERM the token writer has not the role read"},
		{"TT.ADD k NS login", "-NOPERM the token writer is not for this namespace"},
		{"TT.COUNT k 1m", "-NOPERM the token writer has not the role read"},
		{"TT.SERIES k 1m", "-NOPERM the token writer has not the role read"},
		{"TT.TOP", "-NOPERM this concerns all namespaces, and the token writer is for some"},
		{"TT.RESET k", "-NOPERM the token writer has not the role admin"},
		{"AUTH writer " + texts["writer"], "OK"},
		{"AUTH " + texts["reader"], "OK"},
		{"TT.COUNT k 1m", "[2]"},
		{"TT.TOP", "[[default k 2]]"},
		{"TT.ACQUIRE k LIMIT 1m 1", "-NOPERM the token reader has not the role count"},
		{"AUTH " + master, "OK"},
		{"TT.RESET k", "OK"},
		{"RESET", "RESET"},
		{"TT.ADD k", "-NOAUTH Authentication required."},
	})
}

// TestTokenInPipeline authenticates and counts in one piece, and switches in its middle to a token
// that grants less.
func TestTokenInPipeline(t *testing.T) {
	texts, store := tokensOf(t, map[string]string{"writer": "count", "reader": "read"})
	c := dial(t, serve(t, resp.Options{Service: newService(t), Tokens: store}))
	c.send(command("TT.ADD k") + command("AUTH "+texts["writer"]) + command("TT.ADD k") +
		command("AUTH "+texts["reader"]) + command("TT.ADD k") + command("TT.COUNT k 1m"))
	c.expectReplies("-NOAUTH Authentication required.", "OK", "OK", "OK",
		"-NOPERM the token reader has not the role count", "[1]")
}

// TestWithdrawnToken takes a token out of the file while a connection uses it.
func TestWithdrawnToken(t *testing.T) {
	texts, store := tokensOf(t, map[string]string{"writer": "count"})
	c := dial(t, serve(t, resp.Options{Service: newService(t), Tokens: store}))
	c.expect([][2]string{{"AUTH " + texts["writer"], "OK"}})
	_, hash := token.New()
	must.Succeed(t, store.Load([]byte("other "+hash+" count")))
	c.expect([][2]string{{"TT.ADD k", "-NOAUTH Authentication required."}})
}

// TestStrangersAreCutOff checks that connections that don't authenticate end.
func TestStrangersAreCutOff(t *testing.T) {
	_, store := tokensOf(t, map[string]string{"writer": "count"})
	server := serve(t, resp.Options{Service: newService(t), Tokens: store,
		Limits: listener.Limits{ReadTimeout: 200 * time.Millisecond}})
	c := dial(t, server)
	c.expect([][2]string{{"TT.ADD k", "-NOAUTH Authentication required."}})
	c.expectReplies("-NOAUTH Authentication required.")
	c.ended()
}

// TestNotRedis sends input that is not RESP, and commands beyond the bounds. The error names the
// reason, and the connection ends.
func TestNotRedis(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t)})
	for raw, want := range map[string]string{
		"*1\r\nPING\r\n":             "Protocol error: expected '$', got 'P'",
		"*x\r\n":                     "Protocol error: invalid multibulk length",
		"*5000\r\n":                  "Protocol error: invalid multibulk length",
		"*99999999999999999999\r\n":  "Protocol error: invalid multibulk length",
		"*1\r\n$-5\r\n":              "Protocol error: invalid bulk length",
		"*1\r\n$70000\r\n":           "Protocol error: invalid bulk length",
		"*1\r\n$536870912\r\n":       "Protocol error: invalid bulk length",
		"*1\r\n$4\r\nPINGPONG":       "Protocol error: a bulk string of 4 bytes does not end",
		"*2\r\n$4\r\nPING\r\n$65530": "Protocol error: a command has at most 65536 bytes",
		strings.Repeat("x", 5000):    "Protocol error: too big inline request",
		"POST / HTTP/1.1\r\n":        "unknown command 'POST'",
		"GET /?TT.ADD HTTP/1.1\r\n":  "unknown command 'GET'",
	} {
		if strings.HasSuffix(raw, "65530") {
			raw += "\r\n"
		}
		c := dial(t, server)
		c.send(command("TT.ADD k") + raw)
		if got := c.reply(); got != "OK" {
			t.Errorf("%.40q: what came before it: %s", raw, got)
		}
		if got := c.reply(); !strings.HasPrefix(got, "-ERR "+want) {
			t.Errorf("%.40q: got %s, want %s", raw, got, want)
		}
		c.ended()
	}
}

// TestBrowsersCantCount sends a request that a web page can make a browser send: the commands in
// its body are not executed.
func TestBrowsersCantCount(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	c.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nTT.ADD k\r\n")
	c.expectReplies("-ERR unknown command 'POST'")
	c.ended()
	if keys, err := s.Top(t.Context(), "", "", 10, 60_000); err != nil || len(keys) > 0 {
		t.Errorf("counted %v, %v", keys, err)
	}
}

// TestLongCommands sends commands that don't fit in the small buffer of a connection, between short
// ones, and a pipeline of a mebibyte.
func TestLongCommands(t *testing.T) {
	c := dial(t, serve(t, resp.Options{Service: newService(t)}))
	long := strings.Repeat("x", 60_000)
	acquire := "TT.ACQUIRE k0 LIMIT 1m 5"
	for i := 1; i < 64; i++ {
		acquire += fmt.Sprintf(" KEY k%d", i) + strings.Repeat(" LIMIT 1m 5", 8)
	}
	for range 3 {
		c.send(command("PING a") + command("ECHO "+long) + command(acquire) + command("PING b"))
		c.expectReplies("a", long)
		if got := c.reply(); !strings.HasPrefix(got, "[1 0 ") {
			t.Errorf("%.100s", got)
		}
		c.expectReplies("b")
	}
	const many = 30_000
	c.sendInPieces(strings.Repeat(command("TT.ADD many"), many), 1<<20)
	c.expectReplies(slices.Repeat([]string{"OK"}, many)...)
	c.expect([][2]string{{"TT.COUNT many 1m", fmt.Sprintf("[%d]", many)}})
}

// TestTooManyConnections checks that connections beyond the bound of one address are turned away.
func TestTooManyConnections(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t), Limits: listener.Limits{MaxConns: 4,
		MaxConnsPerAddress: 2}})
	first, second := dial(t, server), dial(t, server)
	for _, c := range []*client{first, second} {
		if got := c.do("PING"); got != "PONG" {
			t.Error(got)
		}
	}
	third := dial(t, server)
	if got := third.reply(); got !=
		"-ERR max number of clients reached: too many connections from this address" {
		t.Error(got)
	}
	third.ended()
	first.Close()
	for by := time.Now().Add(patience); ; {
		c := dial(t, server)
		c.send(command("PING"))
		if got, err := c.next(); err == nil && got == "PONG" {
			return
		}
		if time.Now().After(by) {
			t.Fatal("a connection that has ended still counts")
		}
	}
}

// TestSlowReader sends a pipeline and does not read: the server stops reading, holds a bounded part
// of it, and ends the connection.
func TestSlowReader(t *testing.T) {
	s := newService(t)
	server := serve(t, resp.Options{Service: s,
		Limits: listener.Limits{WriteTimeout: 200 * time.Millisecond}})
	c := dial(t, server)
	echo := command("ECHO " + strings.Repeat("x", 4000))
	err := c.SetWriteDeadline(time.Now().Add(patience))
	sent := 0
	for err == nil && sent < 1<<30 {
		var n int
		n, err = c.Write([]byte(echo))
		sent += n
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after %d bytes: %v, want that the server ends the connection", sent, err)
	}
	other := dial(t, server)
	other.expect([][2]string{{"PING", "PONG"}})
}

// TestSlowService has a pipeline take longer to execute than the client may take to read: every
// answer still arrives.
func TestSlowService(t *testing.T) {
	s := newService(t)
	s.hold = make(chan struct{})
	const limit = 50 * time.Millisecond
	c := dial(t, serve(t, resp.Options{Service: s, Limits: listener.Limits{WriteTimeout: limit}}))
	c.expect([][2]string{{"PING", "PONG"}})
	c.send(command("TT.ADD a"))
	time.Sleep(3 * limit)
	close(s.hold)
	c.expectReplies("OK")
}

// TestIdleConnectionsEnd checks that idle connections end.
func TestIdleConnectionsEnd(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t),
		Limits: listener.Limits{IdleTimeout: 200 * time.Millisecond}})
	c := dial(t, server)
	c.expect([][2]string{{"PING", "PONG"}})
	c.ended()
}

// TestCloseAnswersWhatWasRead closes the server while an operation is executed.
func TestCloseAnswersWhatWasRead(t *testing.T) {
	s := newService(t)
	s.hold = make(chan struct{})
	server := serve(t, resp.Options{Service: s})
	c, idle := dial(t, server), dial(t, server)
	c.send(command("TT.ADD k") + command("TT.ADD k"))
	for by := time.Now().Add(patience); s.deals.Load() == 0 && time.Now().Before(by); {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		closed <- server.Close(ctx)
	}()
	idle.ended()
	close(s.hold)
	for range 2 {
		c.expectReplies("OK")
	}
	c.ended()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", server.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// TestCloseDoesNotWaitForReaders closes servers, one of them with TLS, while a client does not read
// its answers. The client is cut off before the time is up, and Close returns no error.
func TestCloseDoesNotWaitForReaders(t *testing.T) {
	server, client, err := testca.Pair()
	must.Succeed(t, err)
	o := resp.Options{Service: newService(t), Limits: listener.Limits{WriteTimeout: time.Minute}}
	plain := serve(t, o)
	o.TLS = server
	secure := serve(t, o)
	echo := []byte(command("ECHO " + strings.Repeat("x", 4000)))
	for _, c := range []net.Conn{dial(t, plain), tls.Client(dial(t, secure), client)} {
		for err = nil; err == nil; _, err = c.Write(echo) {
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

// TestMetrics compares the metrics with the commands sent.
func TestMetrics(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t)})
	c := dial(t, server)
	c.send(strings.Repeat(command("TT.ADD k"), 3) + command("PING") + command("TT.ADD k N x"))
	for range 5 {
		c.reply()
	}
	c.do("PING") // the commands before it have been counted
	got := metricsOf(t, server)
	for name, want := range map[string]float64{
		"twotier_resp_commands_total tt.add": 4,
		"twotier_resp_errors_total ERR":      1,
		"twotier_resp_connections":           1,
		"twotier_resp_rejected_total":        0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// measured is a connection that notes the largest piece written to it.
type measured struct {
	net.Conn
	most *atomic.Int64
}

func (m measured) Write(b []byte) (int, error) {
	m.most.Store(max(m.most.Load(), int64(len(b))))
	return m.Conn.Write(b)
}

// pipeListener accepts the connections of a channel.
type pipeListener struct{ conns chan net.Conn }

func (p pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipeListener) Close() error { close(p.conns); return nil }

func (pipeListener) Addr() net.Addr { return nil }

func (measured) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// TestAnswersAreWrittenAsTheyCome sends commands of eight bytes whose answers are two hundred times
// as long. The answers don't pile up in memory until the whole pipeline is executed.
func TestAnswersAreWrittenAsTheyCome(t *testing.T) {
	server, err := resp.New(resp.Options{Service: newService(t), Listen: "a pipe"})
	must.Succeed(t, err)
	near, far := net.Pipe()
	defer near.Close()
	var most atomic.Int64
	pipes := pipeListener{make(chan net.Conn, 1)}
	must.Succeed(t, server.OpenOn(t.Context(), pipes))
	defer server.Close(t.Context())
	pipes.conns <- measured{far, &most}
	go func() { _, _ = io.WriteString(near, strings.Repeat("COMMAND\n", 8192)+"QUIT\n") }()
	all, err := io.ReadAll(near)
	if n := bytes.Count(all, []byte("cl.throttle")); n < 8192 {
		t.Errorf("%d answers of %d bytes: %v", n, len(all), err)
	}
	if n := most.Load(); n > 128<<10 {
		t.Errorf("%d bytes of answers waited to be written", n)
	}
}
