package peer_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/testing/must"
)

// TestPasses admits only senders with the secret, and only messages of the stated length.
func TestPasses(t *testing.T) {
	secret := []byte("what all nodes share")
	s := peer.NewServer(peer.ServerOptions{Self: "b-1", Secret: secret})
	good := passes(t, secret)
	first, second := good.Pass(1000), good.Pass(1000)
	if first == second || first == "" {
		t.Errorf("two passes are the same: %q", first)
	}
	for _, pass := range []string{first, second} {
		if err := s.Admit(pass, 1000); err != nil {
			t.Errorf("a node is not admitted: %v", err)
		}
	}
	for name, test := range map[string]struct {
		pass string
		size int
	}{
		"none":             {"", 1000},
		"another length":   {first, 1001},
		"no length":        {first, -1},
		"another secret":   {passes(t, []byte("what others share")).Pass(1000), 1000},
		"no secret":        {passes(t, nil).Pass(1000), 1000},
		"damaged":          {first[:len(first)-2] + "AA", 1000},
		"cut short":        {first[:10], 1000},
		"of no alphabet":   {"%" + first, 1000},
		"long":             {strings.Repeat("A", 10_000), 1000},
		"without a sender": {"Ag", 1000},
	} {
		if err := s.Admit(test.pass, test.size); err == nil {
			t.Errorf("%s: admitted", name)
		}
	}
	good.SetSecrets([][]byte{[]byte("what is to be shared next"), secret})
	if err := s.Admit(good.Pass(5), 5); err == nil {
		t.Error("admitted by a secret that is not known yet")
	}
	s.SetSecrets([][]byte{secret, []byte("what is to be shared next")})
	if err := s.Admit(good.Pass(5), 5); err != nil {
		t.Errorf("not admitted by the second secret: %v", err)
	}
	if err := peer.NewServer(peer.ServerOptions{Self: "b-1"}).Admit("", 1000); err != nil {
		t.Errorf("without a secret: %v", err)
	}
}

// passes returns a client that only makes passes.
func passes(t *testing.T, secret []byte) *peer.Client {
	c, err := peer.NewClient(peer.ClientOptions{Self: "a-1", Secret: secret,
		Transport: silentHost{}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}
