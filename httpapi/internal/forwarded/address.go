package forwarded

import (
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/warning"
)

// AddressKey returns the client's address as a key: an IPv4 address, also if an IPv6 address embeds
// it, or else the /64 network of an IPv6 address, all of which one client usually has.
func (c *Clients) AddressKey(ctx *fasthttp.RequestCtx) string {
	peer, _ := netip.ParseAddrPort(ctx.RemoteAddr().String())
	c.observeMissing(Plain(peer.Addr()), ctx)
	a := translatedAddr(c.Address(Plain(peer.Addr()), ctx))
	if a.Is6() {
		network, _ := a.Prefix(64)
		return network.String()
	}
	return a.String()
}

// embedded lists the IPv6 networks whose addresses contain a host's IPv4 address.
var embedded = [...]struct {
	network netip.Prefix
	at      int  // the byte where the IPv4 address begins
	invert  byte // with which each of its bytes is combined by exclusive or
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12, 0}, // NAT64, RFC 6052, section 2.1
	{netip.MustParsePrefix("2002::/16"), 2, 0},     // 6to4, RFC 3056, section 2
	{netip.MustParsePrefix("2001::/32"), 12, 0xff}, // Teredo, RFC 4380, section 4
}

// translatedAddr returns the IPv4 address embedded in a, or else a. It is for keys only: a stranger
// may choose an address that embeds a trusted proxy's.
func translatedAddr(a netip.Addr) netip.Addr {
	for _, e := range embedded {
		if !e.network.Contains(a) {
			continue
		}
		bytes := a.As16()
		v4 := [4]byte(bytes[e.at:])
		for i := range v4 {
			v4[i] ^= e.invert
		}
		return netip.AddrFrom4(v4)
	}
	return a
}

// Address returns the address of the client behind the trusted proxies. It reads
// X-Forwarded-For from the right, where each proxy adds its caller's address, and stops at the
// first address that does not belong to a trusted proxy: the client may have made up everything to
// the left of it. It also stops at an item that is no address.
func (c *Clients) Address(peer netip.Addr, ctx *fasthttp.RequestCtx) netip.Addr {
	list := ctx.Request.Header.PeekAll("X-Forwarded-For")
	if !c.Trusts(peer) {
		if len(list) > 0 {
			c.observeUntrusted(peer)
		}
		return peer
	}
	for i := len(list) - 1; i >= 0; i-- {
		parts := strings.Split(string(list[i]), ",")
		for j := len(parts) - 1; j >= 0; j-- {
			a, ok := forwardedAddr(strings.TrimSpace(parts[j]))
			if !ok {
				c.observe(warning.ForwardedMalformed, peer.String())
				return peer
			}
			if peer = a; !c.Trusts(a) {
				return a
			}
		}
	}
	return peer
}

// observeMissing records a warning if a trusted proxy does not forward its client's address.
func (c *Clients) observeMissing(peer netip.Addr, ctx *fasthttp.RequestCtx) {
	if c.Trusts(peer) && len(ctx.Request.Header.Peek("X-Forwarded-For")) == 0 {
		c.observe(warning.ForwardedMissing, peer.String())
	}
}

// observeUntrusted records a warning about an untrusted address that has sent X-Forwarded-For. If
// some proxies are trusted, the sender may be a client that made the header up, unless its address
// is private.
func (c *Clients) observeUntrusted(peer netip.Addr) {
	if len(c.Trusted) == 0 || peer.IsPrivate() || peer.IsLoopback() {
		c.observe(warning.ForwardedUntrusted, peer.String())
	}
}

// Trusts reports whether an address is a trusted proxy's.
func (c *Clients) Trusts(a netip.Addr) bool {
	for _, network := range c.Trusted {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// forwardedAddr reads an item of X-Forwarded-For: an address, which some proxies send with a port.
func forwardedAddr(text string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return Plain(a), true
	}
	a, err := netip.ParseAddrPort(text)
	return Plain(a.Addr()), err == nil
}

// Plain returns a without a zone, and as IPv4 if it is an IPv4-mapped IPv6 address.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
