package forwarded

import (
	"bytes"
	"net/netip"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/clientaddr"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/warning"
)

// A key of a forwarded request shows its source, so that no value of one source is a key of another
// one:
//
//	203.0.113.7         the client's address, or the /64 network of one
//	x-user=bob          a header, in lower case
//	query:user=bob      a parameter
//	x-user=sha256:8f43  a value that can't be a key, is a secret, or begins with sha256: itself
//	none                a request that has none of the sources
//
// Addresses have no equals sign, names of headers have neither that nor a colon, and parameters'
// names are escaped: the first equals sign ends the source.
const noneKey = clientaddr.NoKey

// keySource is one source of a key: the client's address, a header or a parameter.
type keySource struct {
	name      string // "" for the address
	parameter bool   // the name is a parameter's
	hashed    bool
	exposed   bool // a secret that is not hashed
}

// parseSource parses one source of a key parameter.
func parseSource(text string) (k keySource, ok bool) {
	text, plain := strings.CutPrefix(text, "plain:")
	if !plain {
		text, k.hashed = strings.CutPrefix(text, "sha256:")
	}
	if text == "ip" {
		return k, true
	}
	if k.name, k.parameter = strings.CutPrefix(text, "query:"); k.parameter {
		return k, k.name != ""
	}
	k.name = strings.ToLower(text)
	switch k.name {
	case "authorization", "proxy-authorization", "cookie":
		k.hashed, k.exposed = !plain, plain
	}
	return k, isToken(k.name)
}

// Key returns the key for a key parameter: the key from the first of its sources that the
// request has.
func (c *Clients) Key(ctx *fasthttp.RequestCtx, sources []byte) ([]byte, *wire.Problem) {
	var key []byte
	for text := range strings.SplitSeq(string(sources), ",") {
		source, ok := parseSource(text)
		if !ok {
			return nil, wire.FieldProblem("",
				"want ip, the name of a header or query:NAME, after sha256: "+
					"to hash it; several with commas between, of which the first is taken that a "+
					"request has")
		}
		if source.exposed {
			c.observe(warning.SecretKey, "key="+text)
		}
		if key == nil {
			key = c.sourceKey(ctx, source)
		}
	}
	if key == nil {
		c.observe(warning.NoKeySource, "key="+string(sources))
		return []byte(noneKey), nil
	}
	return key, nil
}

// sourceKey returns a request's key from a source, or nil if the request has none.
func (c *Clients) sourceKey(ctx *fasthttp.RequestCtx, source keySource) []byte {
	var prefix string
	var value []byte
	switch {
	case source.name == "":
		address := []byte(c.AddressKey(ctx))
		if !source.hashed {
			return address
		}
		prefix, value = "ip=", address
	case source.parameter:
		prefix = "query:" + url.QueryEscape(source.name) + "="
		value = originalQuery(ctx, source.name)
	default:
		prefix, value = source.name+"=", ctx.Request.Header.Peek(source.name)
	}
	if len(value) == 0 {
		return nil
	}
	key := append([]byte(prefix), value...)
	if source.hashed || !request.ValidKey(key) || request.IsHashed(value) {
		key = append(key[:len(prefix)], request.HashedKey(value)...)
	}
	return request.KeyOf(key) // the name may be too long
}

// originalQuery returns a parameter of the request's own query, which proxies send in
// X-Forwarded-Uri.
func originalQuery(ctx *fasthttp.RequestCtx, name string) []byte {
	_, query, _ := bytes.Cut(ctx.Request.Header.Peek("X-Forwarded-Uri"), []byte{'?'})
	var args fasthttp.Args
	args.ParseBytes(query)
	return args.Peek(name)
}

// isToken reports whether text may be the name of a header (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9'
		return !letter && (r > 0x7f || !strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

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
