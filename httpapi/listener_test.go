package httpapi_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"twotier.dev/twotier/httpapi"
)

// TestOpenOnAListenerMadeElsewhere serves on a Unix socket that the caller has opened. Close closes
// it.
func TestOpenOnAListenerMadeElsewhere(t *testing.T) {
	s, err := httpapi.New(httpapi.Options{Service: newFake()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.OpenOn(t.Context(), ln); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", ln.Addr().String())
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	answer, err := c.Get("http://localhost/healthz")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("status %d", answer.StatusCode)
	}
	if err := s.OpenOn(t.Context(), ln); !errors.Is(err, httpapi.ErrOpened) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if conn, err := dial(t.Context(), "", ""); err == nil {
		t.Errorf("still listening: %v", conn.Close())
	}
}
