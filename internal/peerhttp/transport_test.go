package peerhttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/rpc"
)

// TestConnectionClosedWhileIdle closes connections while nothing is in flight: the next message
// uses another connection, and if there is none, it has certainly not been sent.
func TestConnectionClosedWhileIdle(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	var opened atomic.Int64
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	transport := peerhttp.New(func(int) string { return "" })
	defer transport.Close()
	send := func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return transport.Send(ctx, s.Listener.Addr().String(), []byte("hello"))
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
		if opened.Swap(0) == 0 {
			t.Fatal("there was no connection to close")
		}
		s.CloseClientConnections()
	}
	if _, err := send(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := send(); !errors.Is(err, rpc.ErrUnreachable) {
		t.Errorf("a node that is gone: %v, want one that can't be reached", err)
	}
}
