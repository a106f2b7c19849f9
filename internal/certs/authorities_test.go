package certs_test

import (
	"crypto/tls"
	"testing"

	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/testing/must"
)

// TestEmptyFileOfAuthorities checks that a truncated file of authorities does not let everyone in.
func TestEmptyFileOfAuthorities(t *testing.T) {
	node, cert, key := newCA(t)
	clients, _, _ := newCA(t)
	var s certs.Store
	must.Succeed(t, s.Load(cert, key, clients.PEM))
	for _, text := range []string{"", "\n"} {
		if err := s.Load(cert, key, []byte(text)); err == nil {
			t.Errorf("%q was taken for authorities", text)
		}
	}
	stranger := &tls.Config{RootCAs: node.Pool(), ServerName: "127.0.0.1"}
	if _, err := visit(t, s.Server(), stranger); err == nil {
		t.Error("a client without a certificate was let in")
	}
}
