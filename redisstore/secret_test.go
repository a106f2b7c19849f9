package redisstore_test

import (
	"bytes"
	"testing"
	"time"

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

// TestOlderHoldSecretStays: Redis loses its data, and a new store with the same seed writes another
// secret before one that has the old secret notices. The old one comes back.
func TestOlderHoldSecretStays(t *testing.T) {
	srv := redistest.Start(t)
	older := open(t, redisstore.Options{URL: srv.URL()})
	must.Succeed(t, older.Probe(t.Context()))
	secret := older.HoldSecret()
	flushAll(t, srv)
	time.Sleep(2 * time.Millisecond) // secrets of one millisecond are equally old
	younger := open(t, redisstore.Options{URL: srv.URL()})
	must.Succeed(t, younger.Probe(t.Context()))
	if bytes.Equal(younger.HoldSecret(), secret) {
		t.Fatal("two stores have drawn the same secret")
	}
	must.Succeed(t, older.EnsureAgreement(t.Context()))
	must.Succeed(t, younger.EnsureAgreement(t.Context()))
	for name, s := range map[string]*redisstore.Store{"older": older, "younger": younger} {
		if !bytes.Equal(s.HoldSecret(), secret) {
			t.Errorf("the %s one has another secret", name)
		}
	}
}
