package redistest

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
	"os"
	"path/filepath"
	"time"
)

// TLSFiles are the paths of the PEM files of a server started with [TLS]. The certificate is good
// for a client too.
type TLSFiles struct {
	CA, Cert, Key string
}

// issuer is a certificate with its key.
type issuer struct {
	cert *x509.Certificate
	der  []byte
	key  *ecdsa.PrivateKey
}

// writeTLSFiles makes a CA and a certificate signed by it, and writes both and the key into the
// directory.
func writeTLSFiles(dir string) (TLSFiles, error) {
	files := TLSFiles{
		CA:   filepath.Join(dir, "ca.pem"),
		Cert: filepath.Join(dir, "cert.pem"),
		Key:  filepath.Join(dir, "key.pem"),
	}
	ca, err := newIssuer("redistest CA", nil)
	if err != nil {
		return files, err
	}
	leaf, err := newIssuer("redistest", ca)
	if err != nil {
		return files, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.key)
	if err != nil {
		return files, fmt.Errorf("encode key: %w", err)
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{
		{files.CA, "CERTIFICATE", ca.der},
		{files.Cert, "CERTIFICATE", leaf.der},
		{files.Key, "PRIVATE KEY", key},
	} {
		data := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := os.WriteFile(f.path, data, 0o600); err != nil {
			return files, fmt.Errorf("write %s: %w", f.kind, err)
		}
	}
	return files, nil
}

// newIssuer makes a certificate signed by parent, or a CA that signs itself.
func newIssuer(name string, parent *issuer) (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, fmt.Errorf("draw serial: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true,
	}
	signer := &issuer{cert: tmpl, key: key}
	if parent == nil {
		tmpl.IsCA, tmpl.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		signer = parent
		tmpl.KeyUsage = x509.KeyUsageDigitalSignature
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth}
		tmpl.IPAddresses, tmpl.DNSNames = []net.IP{net.ParseIP(loopback)}, []string{"localhost"}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return &issuer{cert: cert, der: der, key: key}, nil
}

// clientConfig trusts the CA of the files.
func (f TLSFiles) clientConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read CA: no certificate in %s", f.CA)
	}
	return &tls.Config{RootCAs: roots, ServerName: loopback, MinVersion: tls.VersionTLS12}, nil
}
