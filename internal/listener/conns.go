package listener

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/internal/clientaddr"
)

// Account is an amount of a resource, mostly bytes of memory, that requests may use, with a limit
// for each client. A request that needs more than is free waits until others return theirs.
type Account struct {
	// Most bounds the use by all clients together, Each the use by one of them. They don't change
	// once the account is in use.
	Most, Each int64

	mu      sync.Mutex
	used    int64
	waiters []*waiter // in the order of their arrival
}

// Share is the amount that one client has taken from an account, whose lock guards it.
type Share struct {
	of      *Account
	bytes   int64
	whole   bool // Each does not apply
	blocked bool // an earlier waiter of this client does not fit; false outside grantLocked
}

// waiter is a request of a client that waits for n bytes. taken is closed once it has them.
type waiter struct {
	client *Share
	n      int64
	taken  chan struct{}
}

// NewShare returns the share of a client that has taken nothing.
func (a *Account) NewShare() *Share { return &Share{of: a} }

// Account returns the account that the share is of.
func (s *Share) Account() *Account { return s.of }

// Take takes n bytes for the client as soon as they are free, after its earlier requests. It gives
// up at by. It reports whether it took them.
func (s *Share) Take(n int64, by time.Time) bool { return s.TakeUnless(nil, n, by) }

// TakeUnless is like Take, and also gives up once gone is closed.
func (s *Share) TakeUnless(gone <-chan struct{}, n int64, by time.Time) bool {
	wait := time.Until(by)
	if wait <= 0 {
		return s.TryTake(n)
	}
	w := s.of.enqueue(s, n)
	if w == nil {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.taken:
		return true
	case <-gone:
	case <-timer.C:
	}
	return !s.of.withdraw(w)
}

// TryTake takes n bytes if they are free now, even if others wait.
func (s *Share) TryTake(n int64) bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.of.takeLocked(s, n)
}

// takeLocked takes n bytes if they are free.
func (a *Account) takeLocked(s *Share, n int64) bool {
	if a.used+n > a.Most || !s.whole && s.bytes+n > a.Each {
		return false
	}
	a.used += n
	s.bytes += n
	return true
}

// enqueue returns a waiter for n bytes, or nil if it could take them at once.
func (a *Account) enqueue(s *Share, n int64) *waiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiters) == 0 && a.takeLocked(s, n) {
		return nil
	}
	w := &waiter{s, n, make(chan struct{})}
	a.waiters = append(a.waiters, w)
	a.grantLocked()
	return w
}

// withdraw ends a waiter that gives up. It reports false if the waiter has its bytes already.
func (a *Account) withdraw(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.waiters, w)
	if i < 0 {
		return false
	}
	a.waiters = slices.Delete(a.waiters, i, i+1)
	a.grantLocked() // it may have blocked later ones
	return true
}

// grantLocked gives free bytes to waiters: to the waiters of one client in order, so that none
// starves while others come and go.
func (a *Account) grantLocked() {
	kept := a.waiters[:0]
	for _, w := range a.waiters {
		if w.client.blocked || !a.takeLocked(w.client, w.n) {
			w.client.blocked = true
			kept = append(kept, w)
		} else {
			close(w.taken)
		}
	}
	clear(a.waiters[len(kept):])
	a.waiters = kept
	for _, w := range kept {
		w.client.blocked = false
	}
}

// Fits reports whether the client may have n bytes at all. If not, waiting does not help.
func (s *Share) Fits(n int64) bool { return n <= s.of.Most && (s.whole || n <= s.of.Each) }

// Release returns n bytes.
func (s *Share) Release(n int64) {
	a := s.of
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	s.bytes -= n
	if len(a.waiters) > 0 {
		a.grantLocked()
	}
}

// InUse returns the number of bytes in use.
func (a *Account) InUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// HasWaiters reports whether a client waits for room.
func (a *Account) HasWaiters() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiters) > 0
}

// Limits are the options of all servers. The zero value of each field is the documented default;
// [Defaults] has the defaults of a protocol.
type Limits struct {
	// TLS is used for all connections. Default: none, connections are in plain text.
	TLS *tls.Config
	// RequestTimeout bounds the execution of one request. Default 2s.
	RequestTimeout time.Duration
	// ReadTimeout bounds receiving one request, from its first byte; WriteTimeout bounds sending
	// one answer. Default 10s each. gRPC has multiples of RequestTimeout instead.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests. Default: by the protocol.
	IdleTimeout time.Duration
	// MaxMemory bounds the bytes used by connections, requests and answers together, approximately.
	// Default: by the protocol.
	MaxMemory int64
	// MaxConns bounds the open connections. Default: [Defaults].ConnsFor MaxMemory.
	MaxConns int
	// MaxConnsPerAddress bounds the connections of one IPv4 address or IPv6 network (/64). An
	// address may use the same share of the memory. Default: half of MaxConns.
	MaxConnsPerAddress int
	// Logger receives state changes and panics. Default: none.
	Logger *slog.Logger
}

// Defaults are the defaults of [Limits] in a protocol.
type Defaults struct {
	// Package is named in errors.
	Package string
	Idle    time.Duration
	// Memory is the default of MaxMemory, and LeastMemory its least value, in MiB.
	Memory, LeastMemory int64
	// Conn is the approximate memory of a connection between requests, in bytes, and TLS its
	// additional memory with TLS. Sixteenths is their share of MaxMemory.
	Conn, TLS, Sixteenths int64
}

// ConnsFor returns the default of MaxConns for a MaxMemory of this many bytes.
func (d Defaults) ConnsFor(bytes int64, secure bool) int {
	each := d.Conn
	if secure {
		each += d.TLS
	}
	return int(min(max(1, bytes/16*d.Sixteenths/each), math.MaxInt32))
}

// Fill sets limits that are 0 to their defaults. It returns an error about the first one that is
// out of bounds.
func (l *Limits) Fill(d Defaults) error {
	for _, t := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"RequestTimeout", &l.RequestTimeout, 2 * time.Second},
		{"ReadTimeout", &l.ReadTimeout, 10 * time.Second},
		{"WriteTimeout", &l.WriteTimeout, 10 * time.Second},
		{"IdleTimeout", &l.IdleTimeout, d.Idle},
	} {
		if *t.value < 0 {
			return fmt.Errorf("%s: Options.%s is %v, want more than 0", d.Package, t.name, *t.value)
		}
		setDefault(t.value, t.preset)
	}
	if l.Logger == nil {
		l.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&l.MaxMemory, d.Memory<<20)
	setDefault(&l.MaxConns, d.ConnsFor(l.MaxMemory, l.TLS != nil))
	setDefault(&l.MaxConnsPerAddress, max(1, l.MaxConns/2))
	switch {
	case l.MaxMemory < d.LeastMemory<<20:
		return fmt.Errorf("%s: Options.MaxMemory is %d, want at least %d MiB", d.Package,
			l.MaxMemory, d.LeastMemory)
	case l.MaxConns < 1:
		return fmt.Errorf("%s: Options.MaxConns is %d, want 1 or more", d.Package, l.MaxConns)
	case l.MaxConnsPerAddress < 1 || l.MaxConnsPerAddress > l.MaxConns:
		return fmt.Errorf("%s: Options.MaxConnsPerAddress is %d, want 1 to %d", d.Package,
			l.MaxConnsPerAddress, l.MaxConns)
	}
	return nil
}

func setDefault[T comparable](value *T, preset T) {
	var zero T
	if *value == zero {
		*value = preset
	}
}

// Account returns an account of most bytes, of which one address may use the same part as of the
// connections. It has room for at least twice an amount, and an address for the amount.
func (l *Limits) Account(most, least int64) *Account {
	part := float64(l.MaxConnsPerAddress) / float64(l.MaxConns)
	most = max(most, 2*least)
	return &Account{Most: most, Each: max(least, int64(float64(most)*part))}
}

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
