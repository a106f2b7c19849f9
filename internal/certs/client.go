package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

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
