package hostname

import (
	"bytes"
	"net"
	"slices"
)

// Check decides which host names a server answers to. After a browser has loaded a page, its
// author can make the page's own host name resolve to this server, and the browser then takes the
// server for part of the page's site (DNS rebinding). That does not work with an IP address as the
// host, and the page can't know a token.
type Check struct {
	checked bool
	names   []string
}

// NewCheck returns a check of names if there is no other protection, such as tokens: on loopback,
// which only this machine was meant to reach, and if names are configured.
func NewCheck(names []string, tokens, loopback bool) Check {
	return Check{checked: !tokens && (loopback || len(names) > 0), names: names}
}

// Allow reports whether the server answers to a host. A request without a host is not from a
// browser.
func (c *Check) Allow(host []byte) bool {
	if !c.checked || len(host) == 0 {
		return true
	}
	name := WithoutPort(host)
	if bytes.EqualFold(name, []byte("localhost")) || isAddress(name) {
		return true
	}
	return slices.ContainsFunc(c.names, func(n string) bool {
		return bytes.EqualFold(name, []byte(n))
	})
}

// WithoutPort returns a host without its port.
func WithoutPort(host []byte) []byte {
	if colon := bytes.LastIndexByte(host, ':'); colon >= 0 &&
		bytes.IndexByte(host[colon:], ']') < 0 {
		return host[:colon]
	}
	return host
}

// isAddress reports whether a host is an address that can't be mistaken for a name: digits and
// dots, or something in brackets.
func isAddress(host []byte) bool {
	if len(host) == 0 || host[0] == '[' {
		return len(host) > 0
	}
	for _, c := range host {
		if c != '.' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// IsLoopback reports whether only this machine can reach an address.
func IsLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
