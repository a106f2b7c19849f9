package simnet

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// servePort is the port of the listeners of all hosts.
const servePort = 8080

// ErrBroken reports that a connection broke. The last write may or may not have arrived.
var ErrBroken = errors.New("simnet: connection reset by peer")

// Listen returns a listener for connections to the host. There is at most one at a time.
func (h *Host) Listen() net.Listener {
	l := &listener{h: h, conns: make(chan net.Conn), closed: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listener = l
	return l
}

// Dial connects to the listener of another host. Data written while the link is cut never arrives.
// A share of writes, [Weather].Broken, breaks the connection.
func (h *Host) Dial(ctx context.Context, to string) (net.Conn, error) {
	delay, ok := h.net.passes(h.ip, to, Calls, 0)
	if !ok || h.isDown() {
		_, err := h.wait(ctx)
		return nil, err
	}
	time.Sleep(delay)
	l := h.net.listenerAt(to)
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "simnet", Err: ErrRefused}
	}
	local, remote := h.net.connect(h, l.h)
	select {
	case l.conns <- remote:
		return local, nil
	case <-l.closed:
	case <-l.h.gone:
	case <-ctx.Done():
	}
	return nil, errors.Join(&net.OpError{Op: "dial", Net: "simnet", Err: ErrRefused}, local.Close(),
		remote.Close())
}

func (n *Net) listenerAt(ip string) *listener {
	h := n.host(ip)
	if h == nil || h.isDown() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listener
}

// listener implements net.Listener.
type listener struct {
	h      *Host
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
	case <-l.h.gone:
	}
	return nil, net.ErrClosed
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return tcp(l.h.ip) }

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: servePort} }

// conn is one end of a connection.
type conn struct {
	net.Conn
	from, to *Host
	pair     *pair

	mu   sync.Mutex
	lost bool
}

// pair is the state that both ends share.
type pair struct {
	once   sync.Once
	broken chan struct{} // closed with the connection, by either end
}

func (p *pair) end() { p.once.Do(func() { close(p.broken) }) }

// connect makes a connection, which breaks when either process ends.
func (n *Net) connect(a, b *Host) (local, remote net.Conn) {
	aEnd, bEnd := net.Pipe()
	p := &pair{broken: make(chan struct{})}
	go func() {
		select {
		case <-a.gone:
		case <-b.gone:
		case <-p.broken:
		}
		_, _ = aEnd.Close(), bEnd.Close()
	}()
	return &conn{Conn: aEnd, from: a, to: b, pair: p}, &conn{Conn: bEnd, from: b, to: a, pair: p}
}

// Write delivers the data after a delay, swallows it, or breaks the connection before or after it.
func (c *conn) Write(b []byte) (int, error) {
	if !c.from.awake() {
		return 0, errGone
	}
	n := c.from.net
	d, ok := n.passes(c.from.ip, c.to.ip, Calls, 0)
	if c.swallows(!ok) {
		return len(b), nil
	}
	breaks, arrives := n.breaks()
	time.Sleep(d)
	if breaks && !arrives {
		c.pair.end()
		return 0, ErrBroken
	}
	written, err := c.Conn.Write(b)
	if breaks {
		c.pair.end()
	}
	return written, err
}

// swallows reports whether data written now is lost, because the link is cut or because earlier
// data was lost.
func (c *conn) swallows(cut bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = c.lost || cut
	return c.lost
}

// Read returns data once the process is awake.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && !c.from.awake() {
		return 0, errGone
	}
	return n, err
}

// Close closes the connection at both ends.
func (c *conn) Close() error {
	c.pair.end()
	return c.Conn.Close()
}

func (c *conn) LocalAddr() net.Addr  { return tcp(c.from.ip) }
func (c *conn) RemoteAddr() net.Addr { return tcp(c.to.ip) }
