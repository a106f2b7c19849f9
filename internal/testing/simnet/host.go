package simnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Handler answers calls. It may be called concurrently, and it owns request.
type Handler func(request []byte) (reply []byte)

// Host is one process on the network. Make one with [Net.Start].
type Host struct {
	net *Net
	ip  string

	packets chan *memberlist.Packet
	streams chan net.Conn
	gone    chan struct{}

	mu       sync.Mutex
	handler  Handler
	idle     []worker
	listener *listener
	down     bool
}

// GossipPort is the gossip port of all hosts.
const GossipPort = 7946

// Start starts a process on the host with this address. It stops the one that ran there before.
func (n *Net) Start(ip string) *Host {
	h := &Host{
		net: n, ip: ip, packets: make(chan *memberlist.Packet, 1024),
		streams: make(chan net.Conn, 16), gone: make(chan struct{}),
	}
	n.mu.Lock()
	old := n.hosts[ip]
	n.hosts[ip] = h
	n.mu.Unlock()
	if old != nil {
		old.Stop()
	}
	return h
}

// Stop ends the process: nothing more is delivered to it or from it. Calls in flight get no answer.
func (h *Host) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.down {
		h.down = true
		close(h.gone)
		h.dismissLocked()
		h.net.Thaw(h.ip)
	}
}

// Serve sets the handler of calls to this host.
func (h *Host) Serve(handler Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler = handler
}

// enter returns the handler for a call that has arrived, or nil if nothing listens.
func (h *Host) enter() Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil
	}
	return h.handler
}

func (h *Host) isDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// Call sends a request and returns the reply. If the error is [ErrRefused], the request was not
// delivered. After any other error the outcome is unknown: a request that is on its way arrives
// even if the caller has given up.
func (h *Host) Call(ctx context.Context, to string, request []byte) ([]byte, error) {
	if err := h.net.Awake(ctx, h.ip); err != nil {
		return nil, err
	}
	_, loss := h.net.losses()
	d, ok := h.net.passes(h.ip, to, Calls, loss)
	if !ok || h.isDown() {
		return h.wait(ctx)
	}
	outcomes := make(chan outcome, 1)
	request = slices.Clone(request) // the caller may go on before it is handled
	h.do(func() { outcomes <- h.net.deliver(h, to, request, d) })
	select {
	case o := <-outcomes:
		if o.lost || h.isDown() {
			return h.wait(ctx)
		}
		return o.reply, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.gone:
		return nil, errGone
	}
}

// outcome is the outcome of a call.
type outcome struct {
	reply []byte
	err   error
	lost  bool // the reply was lost
}

// deliver takes d to deliver a request to a host, and brings the reply back.
func (n *Net) deliver(from *Host, to string, request []byte, d time.Duration) outcome {
	time.Sleep(d)
	peer := n.host(to)
	if peer == nil {
		return outcome{err: fmt.Errorf("%w by %s", ErrRefused, to)}
	}
	var handler Handler
	if peer.awake() {
		handler = peer.enter()
	}
	if handler == nil {
		return outcome{err: fmt.Errorf("%w by %s", ErrRefused, to)}
	}
	reply := handler(request)
	n.sent(Sent{Kind: Calls, Messages: 2, Bytes: len(request) + len(reply)})
	_, loss := n.losses()
	d, ok := n.passes(to, from.ip, Calls, loss)
	if !ok || !peer.awake() {
		return outcome{lost: true}
	}
	time.Sleep(d)
	return outcome{reply: reply, lost: !from.awake()}
}

// awake waits until the host is not frozen, and reports whether it is still running.
func (h *Host) awake() bool {
	return h.net.Awake(context.Background(), h.ip) == nil && !h.isDown()
}

var errGone = errors.New("simnet: this process is gone")

// wait blocks a caller whose message was lost until ctx is done or its process ends.
func (h *Host) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.gone:
		return nil, errGone
	}
}

// Address returns the host's address for gossip.
func (h *Host) Address() string { return net.JoinHostPort(h.ip, strconv.Itoa(GossipPort)) }

// Transport returns the host's transport for gossip.
func (h *Host) Transport() memberlist.Transport { return &transport{h: h} }

type transport struct {
	h    *Host
	down atomic.Bool
}

// address is a net.Addr.
type address string

func (a address) Network() string { return "simnet" }
func (a address) String() string  { return string(a) }

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(t.h.ip), GossipPort, nil
}

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return now, err
	}
	if err := t.h.net.Awake(context.Background(), t.h.ip); err != nil {
		return now, err
	}
	loss, _ := t.h.net.losses()
	d, ok := t.h.net.passes(t.h.ip, to, Gossip, loss)
	if !ok || t.h.isDown() || t.down.Load() {
		return now, nil
	}
	t.h.net.sent(Sent{Kind: Gossip, Messages: 1, Bytes: len(b)})
	buf := append([]byte(nil), b...)
	time.AfterFunc(d, func() {
		peer := t.h.net.host(to)
		if peer == nil || peer.isDown() || t.h.net.isFrozen(to) {
			return
		}
		select {
		case peer.packets <- &memberlist.Packet{Buf: buf, From: address(t.h.Address()),
			Timestamp: time.Now()}:
		default: // its queue is full
		}
	})
	return now, nil
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.h.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.h.streams }

// Shutdown implements memberlist.Transport. Calls still work.
func (t *transport) Shutdown() error {
	t.down.Store(true)
	return nil
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if err := t.h.net.Awake(context.Background(), t.h.ip); err != nil {
		return nil, err
	}
	delay, ok := t.h.net.passes(t.h.ip, to, Gossip, 0)
	_, back := t.h.net.passes(to, t.h.ip, Gossip, 0)
	if !ok || !back || t.h.isDown() || t.down.Load() || t.h.net.isFrozen(to) {
		time.Sleep(timeout)
		return nil, &net.OpError{Op: "dial", Net: "simnet", Err: os.ErrDeadlineExceeded}
	}
	time.Sleep(delay)
	peer := t.h.net.host(to)
	if peer == nil || peer.isDown() {
		return nil, &net.OpError{Op: "dial", Net: "simnet", Err: ErrRefused}
	}
	local, remote := net.Pipe()
	a := &stream{Conn: local, net: t.h.net, link: link{t.h.ip, to}, remote: address(addr)}
	b := &stream{Conn: remote, net: t.h.net, link: link{to, t.h.ip}, remote: address(t.h.Address())}
	select {
	case peer.streams <- b:
		t.h.net.sent(Sent{Kind: Gossip, Stream: true, Messages: 1})
		return a, nil
	default:
		return nil, errors.Join(&net.OpError{Op: "dial", Net: "simnet", Err: ErrRefused},
			local.Close(), remote.Close())
	}
}

// stream is one end of a gossip connection. Data written while the link is cut never arrives, and
// neither does anything after it.
type stream struct {
	net.Conn
	net    *Net
	link   link
	remote address

	mu   sync.Mutex
	lost bool
}

// Write delivers the data after a delay, or swallows it.
func (s *stream) Write(b []byte) (int, error) {
	if err := s.net.Awake(context.Background(), s.link.from); err != nil {
		return 0, err
	}
	d, ok := s.net.passes(s.link.from, s.link.to, Gossip, 0)
	s.mu.Lock()
	s.lost = s.lost || !ok
	lost := s.lost
	s.mu.Unlock()
	if lost {
		return len(b), nil
	}
	s.net.sent(Sent{Kind: Gossip, Stream: true, Bytes: len(b)})
	time.Sleep(d)
	return s.Conn.Write(b)
}

// RemoteAddr implements net.Conn.
func (s *stream) RemoteAddr() net.Addr { return s.remote }
