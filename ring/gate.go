package ring

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Bounds on connections and reads before a peer has shown that it has the secret: memberlist reads
// a whole message, of up to 20 MiB, before it can check whether it is authentic.
const (
	// maxInbound bounds the connections from other hosts.
	maxInbound = 128
	// inboundPatience is how long a connection is safe before it may have to make room for another
	// one. The message of a member arrives sooner.
	inboundPatience = 50 * time.Millisecond
	// maxInboundMessage bounds the bytes that a connection may send: the state of a thousand
	// members takes less.
	maxInboundMessage = 1 << 20
	// freeInbound is how much each connection may send in any case: the state of twenty members.
	freeInbound = 16 << 10
	// inboundBytes is how much all connections together may send beyond that, and inboundBytesEach
	// how much the connections from one address may. memberlist keeps up to three copies of it.
	inboundBytes, inboundBytesEach = 2 << 20, 1 << 20
)

var errTooMuchGossip = errors.New("too much is being read from the gossip of strangers")

// gate stands between the network and memberlist. It bounds the connections of strangers, and the
// bytes read from them.
type gate struct {
	memberlist.NodeAwareTransport
	streams  chan net.Conn
	stopping chan struct{} // closed by Shutdown
	done     chan struct{} // closed when the network is down
	runs     sync.WaitGroup
	once     sync.Once

	mu   sync.Mutex
	open []*inboundConn // the oldest first
	more int64          // bytes beyond freeInbound that have been read from open
}

// newGate returns a gate in front of a transport. The gate shuts the transport down.
func newGate(t memberlist.NodeAwareTransport) *gate {
	g := &gate{NodeAwareTransport: t, streams: make(chan net.Conn),
		stopping: make(chan struct{}), done: make(chan struct{})}
	g.runs.Go(g.runAdmit)
	return g
}

// StreamCh implements [memberlist.Transport].
func (g *gate) StreamCh() <-chan net.Conn { return g.streams }

// Shutdown implements [memberlist.Transport]. It may be called twice.
func (g *gate) Shutdown() (err error) {
	g.once.Do(func() {
		close(g.stopping)
		err = g.NodeAwareTransport.Shutdown()
		close(g.done)
		g.runs.Wait()
	})
	return err
}

// runAdmit passes connections on until the network is down.
func (g *gate) runAdmit() {
	for {
		select {
		case nc := <-g.NodeAwareTransport.StreamCh():
			c := g.admit(nc)
			if c == nil {
				nc.Close()
				continue
			}
			select {
			case g.streams <- c:
			case <-g.stopping:
				c.Close()
			}
		case <-g.done:
			return
		}
	}
}

// admit returns the connection, or nil if there is no room for it. If there are too many, the
// oldest one that has shown nothing yet makes room: there may be any number of silent and slow
// connections, while a member that joins is done in a moment.
func (g *gate) admit(nc net.Conn) *inboundConn {
	c := &inboundConn{Conn: nc, gate: g, from: sourcePrefix(nc), since: time.Now()}
	for {
		g.mu.Lock()
		full := len(g.open) >= maxInbound
		var victim *inboundConn
		if full {
			victim = g.victimLocked()
		} else {
			g.open = append(g.open, c)
		}
		g.mu.Unlock()
		switch {
		case !full:
			return c
		case victim == nil:
			return nil
		}
		select {
		case <-time.After(inboundPatience - time.Since(victim.since)):
			victim.Close()
		case <-g.stopping:
			return nil
		}
	}
}

// victimLocked returns the connection that makes room for another one: the oldest unanswered one of
// the address with the most connections. It returns nil if there is none.
func (g *gate) victimLocked() *inboundConn {
	count, busiest := map[netip.Addr]int{}, netip.Addr{}
	for _, c := range g.open {
		if count[c.from]++; count[c.from] > count[busiest] {
			busiest = c.from
		}
	}
	for _, c := range g.open {
		if c.from == busiest && !c.answered {
			return c
		}
	}
	return nil
}

// remove forgets a connection.
func (g *gate) remove(c *inboundConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.open, c); i >= 0 {
		g.open = slices.Delete(g.open, i, i+1)
		g.more -= c.excess()
	}
}

// charge accounts for n bytes of a connection. It returns an error if the connection may not send
// them, or was closed since they were read: remove has subtracted its bytes by then, and nothing
// would subtract these.
func (g *gate) charge(c *inboundConn, n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.open, c) {
		return net.ErrClosed
	}
	before := c.excess()
	c.read += int64(n)
	g.more += c.excess() - before
	each := int64(0)
	for _, other := range g.open {
		if other.from == c.from {
			each += other.excess()
		}
	}
	if c.excess() > 0 &&
		(c.read > maxInboundMessage || g.more > inboundBytes || each > inboundBytesEach) {
		return errTooMuchGossip
	}
	return nil
}

// inboundConn is a connection from another host.
type inboundConn struct {
	net.Conn
	gate  *gate
	from  netip.Addr
	since time.Time

	// The gate's mutex guards the rest.
	read     int64
	answered bool // its message has been read: it makes room for no other
}

// excess returns the bytes that the connection has sent beyond freeInbound.
func (c *inboundConn) excess() int64 { return max(0, c.read-freeInbound) }

// Read implements [net.Conn].
func (c *inboundConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	if refused := c.gate.charge(c, n); refused != nil {
		c.Close()
		return 0, refused
	}
	return n, err
}

// Write implements [net.Conn].
func (c *inboundConn) Write(b []byte) (int, error) {
	c.gate.mu.Lock()
	c.answered = true
	c.gate.mu.Unlock()
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *inboundConn) Close() error {
	c.gate.remove(c)
	return c.Conn.Close()
}

// sourcePrefix returns the address of a connection's peer; for IPv6 its /64, which is one customer.
func sourcePrefix(nc net.Conn) netip.Addr {
	tcp, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if p, err := ip.Prefix(64); ip.Is6() && err == nil {
		return p.Addr()
	}
	return ip
}

// freePortTries is how many ports are tried until one is free for both TCP and UDP.
const freePortTries = 10

// listen opens the network for memberlist, behind a gate, unless the configuration has a transport.
func listen(cfg *memberlist.Config) error {
	if cfg.Transport != nil {
		return nil
	}
	network := &memberlist.NetTransportConfig{BindAddrs: []string{cfg.BindAddr},
		BindPort: cfg.BindPort, Logger: cfg.Logger}
	t, err := memberlist.NewNetTransport(network)
	for i := 1; err != nil && cfg.BindPort == 0 && i < freePortTries; i++ {
		t, err = memberlist.NewNetTransport(network)
	}
	if err != nil {
		return err
	}
	if cfg.BindPort == 0 {
		cfg.BindPort = t.GetAutoBindPort()
		cfg.AdvertisePort = cfg.BindPort
	}
	cfg.Transport = newGate(t)
	return nil
}

// secrets holds the keys of the gossip: the first one encrypts, all of them decrypt.
type secrets struct {
	mu   sync.Mutex
	list [][]byte
	ring *memberlist.Keyring // nil until it is opened, and without secrets
}

// errPlain means that a running node can neither start nor stop encrypting, because the other nodes
// would not understand it.
var errPlain = errors.New("adding the first secret, or removing the last one, takes a restart")

// SetSecrets replaces the secrets of the gossip. The first one encrypts this node's messages; all
// of them are accepted. It may be called at any time, which allows a secret to be rotated without a
// pause: append the new one on all nodes, then move it to the front, then remove the old one.
func (r *Ring) SetSecrets(list [][]byte) error {
	r.secrets.mu.Lock()
	defer r.secrets.mu.Unlock()
	if r.secrets.ring == nil && r.list == nil {
		r.secrets.list = slices.Clone(list)
		return nil
	}
	if r.secrets.ring == nil || len(list) == 0 {
		return fmt.Errorf("ring: %w", errPlain)
	}
	return r.secrets.replaceLocked(list)
}

// keyring returns memberlist's keys, nil without secrets.
func (s *secrets) keyring() (*memberlist.Keyring, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil, nil
	}
	keys, err := gossipKeys(s.list)
	if err != nil {
		return nil, err
	}
	s.ring, err = memberlist.NewKeyring(keys, keys[0])
	return s.ring, err
}

// replaceLocked changes memberlist's keys such that, at every moment, all keys in both the old and
// the new list are accepted.
func (s *secrets) replaceLocked(list [][]byte) error {
	keys, err := gossipKeys(list)
	if err != nil {
		return err
	}
	for _, key := range keys {
		err = errors.Join(err, s.ring.AddKey(key))
	}
	if err = errors.Join(err, s.ring.UseKey(keys[0])); err != nil {
		return fmt.Errorf("ring: keys: %w", err)
	}
	for _, old := range slices.Clone(s.ring.GetKeys()) {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, old) }) {
			err = errors.Join(err, s.ring.RemoveKey(old))
		}
	}
	s.list = slices.Clone(list)
	return err
}

// gossipKeys derives the encryption keys from the secrets.
func gossipKeys(list [][]byte) (keys [][]byte, err error) {
	for _, secret := range list {
		key, err := hkdf.Key(sha256.New, secret, nil, "twotier gossip", 32)
		if err != nil {
			return nil, fmt.Errorf("ring: key: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
