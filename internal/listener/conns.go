package listener

import (
	"net"
	"net/netip"
	"sync"

	"twotier.dev/twotier/internal/clientaddr"
)

// Conns counts the connections of a listener by address. Each address has a share of each of the
// listener's accounts.
type Conns struct {
	// Accounts are the arguments of [NewConns].
	Accounts []*Account

	most, each int
	trusted    []netip.Prefix

	mu      sync.Mutex
	used    int
	clients map[netip.Prefix]*Client
}

// Client is an address with connections.
type Client struct {
	// Shares are the shares of the accounts, in their order.
	Shares []Share

	at      netip.Prefix
	trusted bool // by Trust
	conns   int  // guarded by Conns
}

// NewConns returns a count that allows most connections in total, and each from one address.
// Constants number the accounts of their memory.
func NewConns(most, each int, accounts ...*Account) *Conns {
	return &Conns{Accounts: accounts, most: most, each: each, clients: map[netip.Prefix]*Client{}}
}

// Trust lets each address of these networks use all connections and accounts, such as a proxy that
// fronts all clients. Call it before Enter.
func (a *Conns) Trust(networks []netip.Prefix) { a.trusted = networks }

// Enter takes a connection. If there is none left, it returns nil and names the exhausted bound.
func (a *Conns) Enter(from net.Addr) (c *Client, tooMany string) {
	ip := address(from)
	at := network(ip)
	a.mu.Lock()
	defer a.mu.Unlock()
	c = a.clients[at]
	switch {
	case a.used >= a.most:
		return nil, "too many connections to this node"
	case c == nil:
		c = &Client{at: at, trusted: clientaddr.Within(a.trusted, ip)}
		for _, of := range a.Accounts {
			c.Shares = append(c.Shares, Share{of: of, whole: c.trusted})
		}
		a.clients[at] = c
	case c.conns >= a.each && !c.trusted:
		return nil, "too many connections from this address"
	}
	c.conns++
	a.used++
	return c, ""
}

// Leave returns a connection once everything else it holds has been returned.
func (a *Conns) Leave(c *Client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.conns--
	a.used--
	if c.conns == 0 {
		delete(a.clients, c.at)
	}
}

// Held returns the total use of the first n accounts.
func (a *Conns) Held(n int) (sum int64) {
	for _, of := range a.Accounts[:n] {
		sum += of.InUse()
	}
	return sum
}

// InUse returns the number of connections.
func (a *Conns) InUse() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// address returns the IP address of the other end, or the zero Addr if it has none.
func address(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return clientaddr.Plain(tcp.AddrPort().Addr())
}

// network returns the prefix that counts as one address. For IPv6 that is a /64: a host has, and a
// customer gets, at least that (RFC 6177).
func network(ip netip.Addr) netip.Prefix {
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // the zero prefix if the address is invalid
	return p
}
