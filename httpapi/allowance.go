package httpapi

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// allowance is what the clients of a server may have at a time: connections, memory for what is
// read of them, and memory for what is done for them and answered to them. Whoever takes of the
// latter has the former already and never the other way round, so nobody waits for somebody who
// waits. An address may have a part of everything, so that one client that takes all it can get
// leaves some for others.
type allowance struct {
	conns, eachConns   int
	reading, answering account
	awake              account      // connections that are not parked
	served             atomic.Int64 // how many those are, without a lock
	pages              account      // of metrics

	mu      sync.Mutex
	used    int
	clients map[netip.Prefix]*client
}

// client is what one address has.
type client struct {
	at                 netip.Prefix
	conns              int // guarded by the allowance
	reading, answering share
	awake, pages       share
}

// pagesBytes is what pages of metrics may take until they have been read: some thirty of them. They
// have an account of their own, so that they can be had when clients take all that there is else.
const pagesBytes = 1 << 20

// leastAwake is how many connections may be served at a time in any case, half of them of one
// address.
const leastAwake = 64

// newAllowance returns an allowance of so many connections and bytes, of which each address may
// have the part that eachConns is of conns.
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

// network is what counts as one address: an IPv6 host has, and a customer gets, at least 64 bits of
// them (RFC 6177).
func network(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip, bits := tcp.AddrPort().Addr().Unmap().WithZone(""), 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // of an invalid address it is the zero prefix
	return p
}

// enter takes a connection. It returns nil and what there are too many of if there is none left.
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

// leave gives a connection back, for which nothing is taken any more.
func (a *allowance) leave(c *client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.conns--
	a.used--
	if c.conns == 0 {
		delete(a.clients, c.at)
	}
}
