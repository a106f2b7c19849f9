package clientaddr

import (
	"net/netip"
	"slices"
	"strings"
)

// NoKey is the key of requests without an address, such as requests over a Unix socket.
const NoKey = "none"

// Plain returns a without a zone, and as IPv4 if it is an IPv4-mapped IPv6 address.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// Within reports whether one of the networks contains a.
func Within(networks []netip.Prefix, a netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// Behind returns the address of the client behind trusted proxies. It reads list, the values of
// X-Forwarded-For, from the right, where each proxy adds its caller's address, and stops at the
// first address that does not belong to a trusted proxy: the client may have made up everything to
// the left of it. It also stops at an item that is no address, and reports it as malformed.
func Behind[T string | []byte](peer netip.Addr, list []T, trusts func(netip.Addr) bool) (
	a netip.Addr, malformed bool) {
	if !trusts(peer) {
		return peer, false
	}
	for i := len(list) - 1; i >= 0; i-- {
		parts := strings.Split(string(list[i]), ",")
		for j := len(parts) - 1; j >= 0; j-- {
			a, ok := parseItem(strings.TrimSpace(parts[j]))
			if !ok {
				return peer, true
			}
			if peer = a; !trusts(a) {
				return a, false
			}
		}
	}
	return peer, false
}

// parseItem reads an item of X-Forwarded-For: an address, which some proxies send with a port.
func parseItem(text string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return Plain(a), true
	}
	a, err := netip.ParseAddrPort(text)
	return Plain(a.Addr()), err == nil
}

// Key returns an address as a key: an IPv4 address, also if an IPv6 address embeds it, or else the
// /64 network of an IPv6 address, all of which one client usually has. Without an address it
// returns [NoKey].
func Key(a netip.Addr) string {
	if !a.IsValid() {
		return NoKey
	}
	a = translate(a)
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

// localNAT64 is 64:ff9b:1::/48, for the translators of a network, RFC 8215.
var localNAT64 = [6]byte{0, 0x64, 0xff, 0x9b, 0, 1}

// translate returns the IPv4 address embedded in a, or else a. It is for keys only: a stranger may
// choose an address that embeds a trusted proxy's.
func translate(a netip.Addr) netip.Addr {
	if bytes := a.As16(); [6]byte(bytes[:]) == localNAT64 {
		return translateLocal(a)
	}
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

// translateLocal is translate for an address that begins with localNAT64. The length of the
// translator's prefix is unknown: 48, 56, 64 or 96 bits. RFC 6052, section 2.2, puts the IPv4
// address behind the prefix, leaves out byte 8, which is 0, and fills up with zeros. So the
// shortest prefix with nothing but zeros behind the IPv4 address is taken.
func translateLocal(a netip.Addr) netip.Addr {
	bytes := a.As16()
	if bytes[8] != 0 {
		return a
	}
	packed := slices.Concat(bytes[:8], bytes[9:])
	for _, at := range [...]int{6, 7, 8} {
		if !slices.ContainsFunc(packed[at+4:], func(b byte) bool { return b != 0 }) {
			return netip.AddrFrom4([4]byte(packed[at:]))
		}
	}
	return netip.AddrFrom4([4]byte(packed[11:]))
}
