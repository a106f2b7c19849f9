package httpapi

import (
	"bytes"
	"slices"

	"github.com/valyala/fasthttp"
)

// exactPath returns the path of a request as it was sent. An escaped, doubled or dotted spelling is
// a different path, whatever it might normalize to. The target is a path or, from a proxy, a whole
// URL (RFC 9112, 3.2).
func exactPath(target []byte) []byte {
	if len(target) > 0 && target[0] != '/' {
		_, rest, ok := bytes.Cut(target, []byte("://"))
		slash := bytes.IndexByte(rest, '/')
		if !ok || slash < 0 {
			return nil
		}
		target = rest[slash:]
	}
	if query := bytes.IndexByte(target, '?'); query >= 0 {
		return target[:query]
	}
	return target
}

// framed refuses a request that states its length in two ways. A proxy on the way may have believed
// the other one, and the next request on the connection may then be somebody else's (request
// smuggling; RFC 9112, 6.3). fasthttp believes the chunks.
func framed(h *fasthttp.RequestHeader) *problem {
	const length, chunks = 1, 2
	seen := 0
	for raw := h.RawHeaders(); len(raw) > 0; {
		line := raw
		if end := bytes.IndexByte(raw, '\n'); end >= 0 {
			line, raw = raw[:end], raw[end+1:]
		} else {
			raw = nil
		}
		switch {
		case named(line, "content-length:"):
			seen |= length
		case named(line, "transfer-encoding:"):
			seen |= chunks
		}
	}
	if seen != length|chunks {
		return nil
	}
	return &problem{kind: kindMalformed,
		detail: "both Content-Length and Transfer-Encoding; want one"}
}

// named reports whether a header line begins with a name, given in lower case.
func named(line []byte, name string) bool {
	return len(line) >= len(name) && line[0]|0x20 == name[0] &&
		bytes.EqualFold(line[:len(name)], []byte(name))
}

// hosts decides which host names this server answers to. After a browser has loaded a page, its
// author can make the page's own host name resolve to this server, and the browser then takes the
// server for part of the page's site (DNS rebinding). That does not work with an IP address as the
// host, and the page can't know a token.
type hosts struct {
	checked bool
	names   []string
}

// newHosts checks names if there is no other protection: on loopback, which only this machine was
// meant to reach, and if names are configured.
func newHosts(o *Options, loopback bool) hosts {
	return hosts{checked: o.Tokens == nil && (loopback || len(o.Hosts) > 0), names: o.Hosts}
}

// allow reports whether this server answers to a host. A request without a host is not from a
// browser.
func (h *hosts) allow(host []byte) bool {
	if !h.checked || len(host) == 0 {
		return true
	}
	name := hostname(host)
	if string(name) == "localhost" || isAddress(name) {
		return true
	}
	return slices.ContainsFunc(h.names, func(n string) bool {
		return bytes.EqualFold(name, []byte(n))
	})
}

// hostname returns a host without its port.
func hostname(host []byte) []byte {
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
