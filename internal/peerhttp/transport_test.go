package peerhttp_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
)

// hanger answers messages, and keeps its connections so that a test can close them.
type hanger struct {
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func startHanger(t *testing.T) *hanger {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	e := &hanger{l: l}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns = append(e.conns, c)
			e.mu.Unlock()
			done.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() {
		e.stop()
		done.Wait()
	})
	return e
}

func (e *hanger) serve(c net.Conn) {
	for r := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = r.Discard(int(req.ContentLength))
		if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")); err != nil {
			return
		}
	}
}

// hangUp closes all connections.
func (e *hanger) hangUp() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n = len(e.conns)
	for _, c := range e.conns {
		_ = c.Close()
	}
	e.conns = nil
	return n
}

func (e *hanger) stop() {
	_ = e.l.Close()
	e.hangUp()
}

// TestConnectionClosedWhileIdle closes connections while nothing is in flight: the next message
// uses another connection, and if there is none, it has certainly not been sent.
func TestConnectionClosedWhileIdle(t *testing.T) {
	e := startHanger(t)
	transport := peerhttp.New(func(int) string { return "" })
	defer transport.Close()
	send := func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return transport.Send(ctx, e.l.Addr().String(), []byte("hello"))
	}
	for range 20 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if reply, err := send(); err != nil || string(reply) != "ok" {
					t.Errorf("%q, %v", reply, err)
				}
			})
		}
		all.Wait()
		if e.hangUp() == 0 {
			t.Fatal("there was no connection to close")
		}
	}
	_, err := send()
	must.Succeed(t, err)
	e.stop()
	if _, err := send(); !errors.Is(err, rpc.ErrUnreachable) {
		t.Errorf("a node that is gone: %v, want one that can't be reached", err)
	}
}
