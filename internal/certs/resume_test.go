package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"twotier.dev/twotier/internal/certs"
)

// authority signs certificates, itself included.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// issue makes a certificate and its key, PEM both; without an authority it is one.
func issue(t *testing.T, by *authority) (a *authority, cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, private
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	return &authority{parsed, private, cert}, cert, key
}

// visit connects, lets the server say something, so that a ticket arrives, and returns how that
// went.
func visit(t *testing.T, server, client *tls.Config) (resumed bool, err error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if conn, err := ln.Accept(); err == nil {
			_, _ = conn.Write([]byte("x")) // an error is for the client to see
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

// TestResumptionEndsWithTheAuthority: a client resumes without presenting its certificate again,
// but not once the authority of that is not one any more.
func TestResumptionEndsWithTheAuthority(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12,
		"TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			node, nodeCert, nodeKey := issue(t, nil)
			old, _, _ := issue(t, nil)
			next, _, _ := issue(t, nil)
			_, cert, key := issue(t, old)
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AddCert(node.cert)
			client := &tls.Config{
				RootCAs: roots, Certificates: []tls.Certificate{pair}, MaxVersion: version,
				ServerName:         "127.0.0.1",
				ClientSessionCache: tls.NewLRUClientSessionCache(1),
			}
			var s certs.Store
			load := func(authorities []byte) {
				t.Helper()
				if err := s.Load(nodeCert, nodeKey, authorities); err != nil {
					t.Fatal(err)
				}
			}
			load(nil)
			server := s.Server()
			if _, err := visit(t, server, client); err != nil {
				t.Fatal(err)
			}
			load(old.pem)
			if resumed, err := visit(t, server, client); err != nil || resumed {
				t.Fatalf("certificates are asked for from now on: resumed: %v, %v", resumed, err)
			}
			if resumed, err := visit(t, server, client); err != nil || !resumed {
				t.Fatalf("nothing changed: resumed: %v, %v", resumed, err)
			}
			load(next.pem)
			if resumed, err := visit(t, server, client); err == nil {
				t.Errorf("after the authority was replaced: let in, resumed: %v", resumed)
			}
		})
	}
}

// TestResumptionOutlivesARenewal: a new certificate of the node is nothing that a client has to
// know of.
func TestResumptionOutlivesARenewal(t *testing.T) {
	node, cert, key := issue(t, nil)
	_, newCert, newKey := issue(t, node)
	roots := x509.NewCertPool()
	roots.AddCert(node.cert)
	client := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1",
		ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	var s certs.Store
	if err := s.Load(cert, key, nil); err != nil {
		t.Fatal(err)
	}
	server := s.Server()
	for i := range 2 {
		if resumed, err := visit(t, server, client); err != nil || resumed != (i == 1) {
			t.Fatalf("resumed: %v, %v", resumed, err)
		}
		if err := s.Load(newCert, newKey, nil); err != nil {
			t.Fatal(err)
		}
	}
}
