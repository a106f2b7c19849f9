package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"
)

// Store holds what was loaded last. Its methods may be called from several goroutines.
type Store struct{ now atomic.Pointer[loaded] }

// loaded never changes.
type loaded struct {
	pair    tls.Certificate
	clients *x509.CertPool // nil: none are asked for
	server  *tls.Config
}

// Load puts a certificate and its key in force, PEM both, and the authorities of clients: nil if
// none are asked for, whereas an empty text is a mistake, as of a file that was cut off. If
// something is wrong what was in force stays.
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

// NotAfter is when the certificate that is in force expires.
func (s *Store) NotAfter() time.Time { return s.now.Load().pair.Leaf.NotAfter }

// Server is how to answer those who connect, by what is loaded at that moment. A change of
// authorities also ends what clients could resume without presenting a certificate again.
func (s *Store) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.now.Load().server, nil
		},
	}
}

// Client is how to connect to other nodes.
func (s *Store) Client() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection does, as far as there is something to verify
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.now.Load().pair, nil
		},
		VerifyConnection: s.verify,
	}
}

// errNoCertificate is for a server that presents none, which TLS does not allow.
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
