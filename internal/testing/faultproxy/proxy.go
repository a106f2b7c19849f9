package faultproxy

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy forwards connections to one server, with the faults that a test asks for.
type Proxy struct {
	target   string
	raw      bool
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	mode     atomic.Pointer[mode]
	counters counters
	shift    atomic.Int64 // of the time, in nanoseconds

	mu    sync.Mutex
	conns map[*conn]struct{} // nil once closed
	rules []*rule
}

// Stats counts events since the start.
type Stats struct {
	// Accepted counts connections, Refused the ones that were reset immediately, and Open the ones
	// that are open now.
	Accepted, Refused, Open int64
	// Requests counts requests sent to the server, and Dropped the discarded ones.
	Requests, Dropped int64
	// Replies counts replies sent to the client, and Swallowed the ones that were discarded or cut.
	Replies, Swallowed int64
	// BytesUp were sent to the server, BytesDown to the client.
	BytesUp, BytesDown int64
}

type counters struct {
	accepted, refused, open atomic.Int64
	requests, dropped       atomic.Int64
	replies, swallowed      atomic.Int64
	bytesUp, bytesDown      atomic.Int64
}

// New starts a proxy for a Redis server at host:port or at the path of a Unix socket, and closes it
// at the end of the test. The server doesn't need to be up.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	return open(t, target, false)
}

// NewRaw is [New] for other protocols and for TLS: a message is the result of one read, and the
// reply to a request is the server's next message.
func NewRaw(t testing.TB, target string) *Proxy {
	t.Helper()
	return open(t, target, true)
}

func open(t testing.TB, target string, raw bool) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: listen: %v", err)
	}
	p := &Proxy{target: target, raw: raw, listener: l, conns: make(map[*conn]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mode.Store(&mode{fate: pass, gone: make(chan struct{})})
	p.running.Add(1)
	go p.runAccept()
	t.Cleanup(p.Close)
	return p
}

// Addr returns the host:port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stats returns a snapshot of the counters.
func (p *Proxy) Stats() Stats {
	c := &p.counters
	return Stats{
		Accepted: c.accepted.Load(), Refused: c.refused.Load(), Open: c.open.Load(),
		Requests: c.requests.Load(), Dropped: c.dropped.Load(),
		Replies: c.replies.Load(), Swallowed: c.swallowed.Load(),
		BytesUp: c.bytesUp.Load(), BytesDown: c.bytesDown.Load(),
	}
}

// CloseAll resets all connections that are currently open.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetLocked()
}

func (p *Proxy) resetLocked() {
	for c := range p.conns {
		c.reset()
	}
}

// Close stops listening, resets all connections and waits for all goroutines. It may be called
// twice.
func (p *Proxy) Close() {
	p.cancel()
	// A second Close fails here, which is fine.
	_ = p.listener.Close()
	p.mu.Lock()
	p.resetLocked()
	p.conns = nil
	p.mu.Unlock()
	p.running.Wait()
}

// runAccept accepts connections until the listener is closed.
func (p *Proxy) runAccept() {
	defer p.running.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.counters.accepted.Add(1)
		c := &conn{p: p, client: client, done: make(chan struct{})}
		if p.mode.Load().fate == refuse || !p.add(c) {
			p.counters.refused.Add(1)
			c.reset()
			continue
		}
		p.running.Add(1)
		go c.runConn()
	}
}

// add registers the connection unless the proxy is being closed.
func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return false
	}
	p.conns[c] = struct{}{}
	p.counters.open.Add(1)
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	p.counters.open.Add(-1)
}

// dial connects to the server.
func (p *Proxy) dial() (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(p.target, "/") {
		network = "unix"
	}
	var d net.Dialer
	conn, err := d.DialContext(p.ctx, network, p.target)
	if err != nil {
		return nil, fmt.Errorf("dial server: %w", err)
	}
	return conn, nil
}
