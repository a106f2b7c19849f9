package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Store holds the certificate and the authorities loaded last. Load must succeed before the other
// methods are used. It is safe for concurrent use.
type Store struct{ now atomic.Pointer[loaded] }

// loaded is the result of one Load. It is immutable.
type loaded struct {
	pair    tls.Certificate
	clients *x509.CertPool // nil means that clients need no certificate
	server  *tls.Config
}

// Load replaces the certificate, its key and the authorities for client certificates, all in PEM.
// If authorities is nil, clients need no certificate. If it is empty but not nil, that is an error:
// the file was probably cut off. After an error the previous ones stay in use.
func (s *Store) Load(cert, key, authorities []byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	l := &loaded{pair: pair, server: &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{pair}}}
	if authorities != nil {
		l.clients = x509.NewCertPool()
		if !l.clients.AppendCertsFromPEM(authorities) {
			return errors.New("the file of authorities for clients holds no certificate")
		}
		l.server.ClientCAs, l.server.ClientAuth = l.clients, tls.RequireAndVerifyClientCert
	}
	s.now.Store(l)
	return nil
}

// NotAfter returns when the current certificate expires.
func (s *Store) NotAfter() time.Time { return s.now.Load().pair.Leaf.NotAfter }

// Server returns the configuration for incoming connections. Each connection uses the certificates
// loaded at that moment. After a change of authorities, clients can't resume a session without
// presenting a certificate again.
func (s *Store) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.now.Load().server, nil
		},
	}
}

// Client returns the configuration for connections to other nodes.
func (s *Store) Client() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection verifies, if there are authorities
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.now.Load().pair, nil
		},
		VerifyConnection: s.verify,
	}
}

// errNoCertificate is for a server that presents no certificate, which TLS does not allow.
var errNoCertificate = errors.New("the other node presents no certificate")

// verify checks the certificate of another node against the authorities, if there are any.
func (s *Store) verify(c tls.ConnectionState) error {
	roots := s.now.Load().clients
	if roots == nil {
		return nil
	}
	if len(c.PeerCertificates) == 0 {
		return errNoCertificate
	}
	between := x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	return err
}

// ReadClient returns the settings of a client from PEM files, whose paths may be empty: of the
// authorities to trust in place of the system's, and of a certificate to present with its key.
// Errors name the flags of the files, which begin with flags and go on with ca and cert.
func ReadClient(flags, ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%sca: %w", flags, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sca: %s holds no certificate", flags, ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%scert: %w", flags, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
