package redisstore_test

import (
	"bytes"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// TestHoldSecretIsShared: the first store writes a secret and all others read it. After a loss, one
// that has it writes it again, together with the rest.
func TestHoldSecretIsShared(t *testing.T) {
	srv := redistest.Start(t)
	secretOf := func(s *redisstore.Store) []byte {
		t.Helper()
		must.Succeed(t, s.Probe(t.Context()))
		return s.HoldSecret()
	}
	first := open(t, redisstore.Options{URL: srv.URL()})
	secret := secretOf(first)
	other := open(t, redisstore.Options{URL: srv.URL()})
	if len(secret) < 32 || !bytes.Equal(secretOf(other), secret) {
		t.Errorf("%x is not everybody's", secret)
	}
	flushAll(t, srv)
	must.Succeed(t, first.EnsureAgreement(t.Context()))
	if !bytes.Equal(secretOf(open(t, redisstore.Options{URL: srv.URL()})), secret) {
		t.Error("it was not restored")
	}
}
