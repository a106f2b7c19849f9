// Package forwarded finds out on whose behalf a proxy asks: the client's address, and the key under
// which a forwarded request is counted.
package forwarded

import (
	"net/netip"

	"twotier.dev/twotier/internal/warning"
)

// Clients identifies the clients of proxies.
type Clients struct {
	// Trusted are the networks of proxies whose X-Forwarded-For is believed.
	Trusted []netip.Prefix
	// Warnings records probable mistakes in configuration; nil records none.
	Warnings Warnings
}

// Warnings records probable mistakes in configuration.
type Warnings interface {
	// Observe records a warning triggered by a request.
	Observe(code warning.Code, at string)
}

// observe records a warning triggered by a request.
func (c *Clients) observe(code warning.Code, at string) {
	if c.Warnings != nil {
		c.Warnings.Observe(code, at)
	}
}
