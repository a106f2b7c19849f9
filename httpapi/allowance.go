package httpapi

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// allowance is what the clients of a server may use at a time: connections, memory for reading
// requests, and memory for executing and answering them. A request always takes memory for reading
// first, so requests can't wait for each other in a circle. Each address may only use a part of
// everything, so that a greedy client leaves something for others.
type allowance struct {
	conns, eachConns   int
	reading, answering account
	awake              account      // connections that are not parked
	served             atomic.Int64 // number of awake connections, to be read without a lock
	pages              account      // of metrics

	mu      sync.Mutex
	used    int
	clients map[netip.Prefix]*client
}

// client is what one address uses.
type client struct {
	at                 netip.Prefix
	conns              int // guarded by the allowance
	reading, answering usage
	awake, pages       usage
}

// pagesBytes bounds the metrics pages that have not been read yet, to about thirty. They have an
// account of their own so that metrics work even when clients use up everything else.
const pagesBytes = 1 << 20

// leastAwake is the minimum number of connections that can be served at a time, half of them from
// one address.
const leastAwake = 64

// newAllowance returns an allowance of this many connections and bytes. Each address may use
// eachConns connections and the same share of the bytes.
func newAllowance(conns, eachConns int, bytes int64) *allowance {
	part := float64(eachConns) / float64(conns)
	each := int64(float64(bytes) * part)
	return &allowance{
		conns: conns, eachConns: eachConns, clients: map[netip.Prefix]*client{},
		reading:   account{most: bytes / 4, each: each / 4},
		answering: account{most: bytes - bytes/4, each: each - each/4},
		awake: account{most: max(bytes/4, leastAwake*awakeBytes),
			each: max(each/4, leastAwake/2*awakeBytes)},
		pages: account{most: pagesBytes, each: max(int64(pagesBytes*part), pagesBytes/8)},
	}
}

// network returns the prefix that counts as one address. For IPv6 that is a /64: a host has, and a
// customer gets, at least that (RFC 6177).
func network(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip, bits := tcp.AddrPort().Addr().Unmap().WithZone(""), 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // the zero prefix if the address is invalid
	return p
}

// enter takes a connection. If there is none left, it returns nil and says what there are too many
// of.
func (a *allowance) enter(from net.Addr) (c *client, tooMany string) {
	at := network(from)
	a.mu.Lock()
	defer a.mu.Unlock()
	c = a.clients[at]
	switch {
	case a.used >= a.conns:
		return nil, "too many connections to this node"
	case c == nil:
		c = &client{at: at}
		a.clients[at] = c
	case c.conns >= a.eachConns:
		return nil, "too many connections from this address"
	}
	c.conns++
	a.used++
	return c, ""
}

// leave returns a connection that has given back everything else.
func (a *allowance) leave(c *client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.conns--
	a.used--
	if c.conns == 0 {
		delete(a.clients, c.at)
	}
}
