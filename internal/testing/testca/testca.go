package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// CA is an authority that signs certificates. Make one with [New].
type CA struct {
	// PEM is the certificate of the authority.
	PEM []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a new key.
func New() (*CA, error) {
	c := &CA{}
	template := template(1, time.Now().Add(24*time.Hour))
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	der, key, err := sign(template, template, nil)
	if err != nil {
		return nil, err
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	c.key, c.PEM = key, block("CERTIFICATE", der)
	return c, nil
}

// Issue makes a key and a certificate with the given serial number. The certificate is valid until
// end, for servers and clients, at 127.0.0.1 and localhost.
func (c *CA) Issue(serial int64, end time.Time) (cert, key []byte, err error) {
	leaf := template(serial, end)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf.IPAddresses, leaf.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	der, private, err := sign(leaf, c.cert, c.key)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", raw), nil
}

// Pair returns the configuration of a TLS server, whose certificate is valid for an hour, and the
// configuration of its clients.
func Pair() (server, client *tls.Config, err error) {
	c, err := New()
	if err != nil {
		return nil, nil, err
	}
	cert, key, err := c.Issue(2, time.Now().Add(time.Hour))
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		&tls.Config{RootCAs: c.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}, err
}

// Pool returns a pool that holds only this authority.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

func template(serial int64, end time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: rand.Text()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end, BasicConstraintsValid: true,
	}
}

// sign makes a key and signs a certificate for it. Without a signer it signs with the new key.
func sign(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (
	der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	if signer == nil {
		signer = key
	}
	der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate: %w", err)
	}
	return der, key, nil
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
