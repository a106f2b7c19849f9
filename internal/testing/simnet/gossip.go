package simnet

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

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
