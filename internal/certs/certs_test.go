package certs_test

import (
	"crypto/tls"
	"io"
	"testing"
	"time"

	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/testca"
)

// newCA makes an authority, and a certificate that it signed with its key.
func newCA(t *testing.T) (ca *testca.CA, cert, key []byte) {
	t.Helper()
	ca, err := testca.New()
	must.Succeed(t, err)
	if cert, key, err = ca.Issue(2, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	return ca, cert, key
}

// visit connects and reads something from the server, so that a session ticket arrives. It reports
// whether the session was resumed.
func visit(t *testing.T, server, client *tls.Config) (resumed bool, err error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server)
	must.Succeed(t, err)
	defer ln.Close()
	go func() {
		if conn, err := ln.Accept(); err == nil {
			_, _ = conn.Write([]byte("x")) // the client sees the error
			conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", ln.Addr().String(), client)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 1))
	return conn.ConnectionState().DidResume, err
}

// TestResumptionEndsWithTheAuthority checks that a client resumes a session without presenting its
// certificate again, but no longer once the authority of its certificate has been replaced.
func TestResumptionEndsWithTheAuthority(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12,
		"TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			node, nodeCert, nodeKey := newCA(t)
			old, cert, key := newCA(t)
			next, _, _ := newCA(t)
			pair, err := tls.X509KeyPair(cert, key)
			must.Succeed(t, err)
			client := &tls.Config{
				RootCAs: node.Pool(), Certificates: []tls.Certificate{pair}, MaxVersion: version,
				ServerName:         "127.0.0.1",
				ClientSessionCache: tls.NewLRUClientSessionCache(1),
			}
			var s certs.Store
			load := func(authorities []byte) {
				t.Helper()
				must.Succeed(t, s.Load(nodeCert, nodeKey, authorities))
			}
			load(nil)
			server := s.Server()
			if _, err := visit(t, server, client); err != nil {
				t.Fatal(err)
			}
			load(old.PEM)
			if resumed, err := visit(t, server, client); err != nil || resumed {
				t.Fatalf("certificates are asked for from now on: resumed: %v, %v", resumed, err)
			}
			if resumed, err := visit(t, server, client); err != nil || !resumed {
				t.Fatalf("nothing changed: resumed: %v, %v", resumed, err)
			}
			load(next.PEM)
			if resumed, err := visit(t, server, client); err == nil {
				t.Errorf("after the authority was replaced: let in, resumed: %v", resumed)
			}
		})
	}
}

// TestResumptionOutlivesARenewal checks that clients can still resume after the node has received a
// new certificate.
func TestResumptionOutlivesARenewal(t *testing.T) {
	node, cert, key := newCA(t)
	newCert, newKey, err := node.Issue(3, time.Now().Add(time.Hour))
	must.Succeed(t, err)
	client := &tls.Config{RootCAs: node.Pool(), ServerName: "127.0.0.1",
		ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	var s certs.Store
	must.Succeed(t, s.Load(cert, key, nil))
	server := s.Server()
	for i := range 2 {
		if resumed, err := visit(t, server, client); err != nil || resumed != (i == 1) {
			t.Fatalf("resumed: %v, %v", resumed, err)
		}
		must.Succeed(t, s.Load(newCert, newKey, nil))
	}
}

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
