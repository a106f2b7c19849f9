package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/listener"
)

// TestIdleConnectionsAreParked leaves connections idle until they are parked. They are served
// again, also with two requests in one segment, and end with the server.
func TestIdleConnectionsAreParked(t *testing.T) {
	f := newFake()
	s, addr := open(t, httpapi.Options{Service: f})
	var conns []net.Conn
	var readers []*bufio.Reader
	for range 20 {
		c := dial(t, addr)
		conns, readers = append(conns, c), append(readers, bufio.NewReader(c))
	}
	for round := range 3 {
		for i, c := range conns {
			fmt.Fprint(c, rawAdd(`{"key":"k"}`)+rawAdd(`{"key":"k"}`))
			for range 2 {
				if code, body := answer(t, readers[i]); code != 200 {
					t.Fatalf("round %d: %d %s", round, code, body)
				}
			}
		}
		for deadline := time.Now().
			Add(10 * time.Second); s.Awake() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are taken by connections that are idle", s.Awake())
			}
		}
	}
	if got := f.get("k"); got != 120 {
		t.Errorf("counted %d, want 120", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for i := range conns {
		if _, err := readers[i].ReadByte(); err != io.EOF {
			t.Errorf("after the server's end: %v, want %v", err, io.EOF)
		}
	}
}

// TestParkedConnectionsEnd when their idle timeout is over.
func TestParkedConnectionsEnd(t *testing.T) {
	_, addr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{IdleTimeout: 300 * time.Millisecond}})
	c := dial(t, addr)
	fmt.Fprint(c, rawAdd(`{"key":"k"}`))
	r := bufio.NewReader(c)
	if code, body := answer(t, r); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("after the idle timeout: %q, %v", rest, err)
	}
}
