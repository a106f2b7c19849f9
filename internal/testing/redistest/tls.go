package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"twotier.dev/twotier/internal/testing/testca"
)

// TLSFiles are the paths of the PEM files of a server started with [TLS]. A client may present the
// certificate too.
type TLSFiles struct {
	CA, Cert, Key string
}

// writeTLSFiles makes a CA and a certificate signed by it, and writes both and the certificate's
// key into dir.
func writeTLSFiles(dir string) (TLSFiles, error) {
	files := TLSFiles{
		CA:   filepath.Join(dir, "ca.pem"),
		Cert: filepath.Join(dir, "cert.pem"),
		Key:  filepath.Join(dir, "key.pem"),
	}
	ca, err := testca.New()
	if err != nil {
		return files, err
	}
	cert, key, err := ca.Issue(2, time.Now().Add(24*time.Hour))
	if err != nil {
		return files, err
	}
	for path, text := range map[string][]byte{files.CA: ca.PEM, files.Cert: cert, files.Key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return files, fmt.Errorf("write certificates: %w", err)
		}
	}
	return files, nil
}

// clientConfig returns a configuration that trusts the CA of the files.
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
