package httpapi

import (
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"
)

// clientKey returns the address of the client as a key: an IPv4 address, or the /64 network of an
// IPv6 address, all of which one client usually has.
func (s *Server) clientKey(ctx *fasthttp.RequestCtx) string {
	peer, _ := netip.ParseAddrPort(ctx.RemoteAddr().String())
	a := s.clientAddress(plainAddr(peer.Addr()), ctx)
	if a.Is6() {
		network, _ := a.Prefix(64)
		return network.String()
	}
	return a.String()
}

// clientAddress returns the address of the client behind the proxies that are trusted. It reads
// X-Forwarded-For from the right, where each proxy adds the address that it was called from, and
// stops at the first that is no trusted proxy's: what is to the left of it, the client may have
// made up. It also stops at what is no address.
func (s *Server) clientAddress(peer netip.Addr, ctx *fasthttp.RequestCtx) netip.Addr {
	if !s.trusts(peer) {
		return peer
	}
	list := ctx.Request.Header.PeekAll("X-Forwarded-For")
	for i := len(list) - 1; i >= 0; i-- {
		parts := strings.Split(string(list[i]), ",")
		for j := len(parts) - 1; j >= 0; j-- {
			a, ok := forwardedAddr(strings.TrimSpace(parts[j]))
			if !ok {
				return peer
			}
			if peer = a; !s.trusts(a) {
				return a
			}
		}
	}
	return peer
}

func (s *Server) trusts(a netip.Addr) bool {
	for _, network := range s.opts.TrustedProxies {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// forwardedAddr reads an item of X-Forwarded-For: an address, which some proxies send with a port.
func forwardedAddr(text string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return plainAddr(a), true
	}
	a, err := netip.ParseAddrPort(text)
	return plainAddr(a.Addr()), err == nil
}

// plainAddr returns a as IPv4 if it is, and without a zone.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
