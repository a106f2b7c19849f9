package faulttest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// activated is the command by which a supervisor starts a process with one socket as descriptor 3.
var activated = [...]string{"sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"`}

// inherited returns options for a process that inherits a socket listening at an address.
func inherited(t *testing.T, address string) (net.Listener, proctest.Options) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	must.Succeed(t, err)
	f, err := ln.(*net.TCPListener).File()
	must.Succeed(t, err)
	t.Cleanup(func() { ln.Close(); f.Close() })
	return ln, proctest.Options{Within: activated[:], Files: []*os.File{f}}
}

// TestSocketActivation hands a socket to one process after another. A client that connects while
// none runs waits, and is answered by the next one.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	ln, opt := inherited(t, "127.0.0.1:0")
	first := program.Serve(t, opt)
	if first.Listen != ln.Addr().String() {
		t.Errorf("it listens on %s, the socket is %s", first.Listen, ln.Addr())
	}
	first.MustPost("/v1/add", `{"key":"k"}`)
	if code := first.Stop(); code != 0 {
		t.Errorf("status %d", code)
	}
	answer := make(chan error, 1)
	waiting, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatalf("a client is refused while no process runs: %v", err)
	}
	go func() { answer <- askHealth(waiting) }()
	second := program.Serve(t, opt)
	if err := <-answer; err != nil {
		t.Errorf("the client that waited: %v", err)
	}
	second.MustPost("/v1/add", `{"key":"k"}`)
}

// askHealth asks for /healthz on a connection.
func askHealth(c net.Conn) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
	res, err := client.Get("http://" + c.RemoteAddr().String() + "/healthz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}

// TestSocketThatOthersReach checks that a reachable socket is refused without tokens, as --listen
// is.
func TestSocketThatOthersReach(t *testing.T) {
	t.Parallel()
	_, opt := inherited(t, "0.0.0.0:0")
	p, err := program.TryServe(t, opt)
	<-p.Done()
	if text := p.Log.String(); err == nil || p.ExitCode() != 2 ||
		!strings.Contains(text, "LISTEN_FDS") ||
		!strings.Contains(text, "can be reached by others") {
		t.Errorf("status %d, %v:\n%s", p.ExitCode(), err, text)
	}
	opt.MayComplain = true // it warns about --insecure
	program.Serve(t, opt, "--insecure").MustPost("/v1/add", `{"key":"k"}`)
}
