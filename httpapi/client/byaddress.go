package client

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/clientaddr"
)

// ByAddress returns a key function for [Gate.Handler]: the address of the request's sender, IPv4 or
// the /64 network of IPv6, as the server's /v1/forward-auth counts it for key=ip. X-Forwarded-For
// is believed only if it comes from a trusted proxy, and only up to the first address, from the
// right, that is not one. Requests without an address, such as those of a Unix socket, share the
// key "none".
func ByAddress(trusted ...netip.Prefix) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) {
		peer, _ := netip.ParseAddrPort(r.RemoteAddr)
		return addressKey(peer.Addr(), r.Header["X-Forwarded-For"], trusted), true
	}
}

// FastByAddress is ByAddress for [Gate.FastHandler].
func FastByAddress(trusted ...netip.Prefix) func(*fasthttp.RequestCtx) (string, bool) {
	return func(ctx *fasthttp.RequestCtx) (string, bool) {
		var peer netip.AddrPort
		if tcp, ok := ctx.RemoteAddr().(*net.TCPAddr); ok {
			peer = tcp.AddrPort()
		}
		return addressKey(peer.Addr(), ctx.Request.Header.PeekAll("X-Forwarded-For"), trusted), true
	}
}

// addressKey returns the key of a sender behind trusted proxies.
func addressKey[T string | []byte](peer netip.Addr, forwarded []T, trusted []netip.Prefix) string {
	a, _ := clientaddr.Behind(clientaddr.Plain(peer), forwarded, func(a netip.Addr) bool {
		return clientaddr.Within(trusted, a)
	})
	return clientaddr.Key(a)
}
