package forwarded

import (
	"net/netip"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/clientaddr"
	"twotier.dev/twotier/internal/warning"
)

// AddressKey returns the client's address as a key, see [clientaddr.Key].
func (c *Clients) AddressKey(ctx *fasthttp.RequestCtx) string {
	peer, _ := netip.ParseAddrPort(ctx.RemoteAddr().String())
	a := clientaddr.Plain(peer.Addr())
	c.observeMissing(a, ctx)
	return clientaddr.Key(c.Address(a, ctx))
}

// Address returns the address of the client behind the trusted proxies, see [clientaddr.Behind].
func (c *Clients) Address(peer netip.Addr, ctx *fasthttp.RequestCtx) netip.Addr {
	list := ctx.Request.Header.PeekAll("X-Forwarded-For")
	if len(list) > 0 && !c.Trusts(peer) {
		c.observeUntrusted(peer)
	}
	a, malformed := clientaddr.Behind(peer, list, c.Trusts)
	if malformed {
		c.observe(warning.ForwardedMalformed, a.String())
	}
	return a
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
func (c *Clients) Trusts(a netip.Addr) bool { return clientaddr.Within(c.Trusted, a) }
