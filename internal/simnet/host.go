package simnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Handler answers calls. It may be called several times at once; request is its own.
type Handler func(request []byte) (reply []byte)

// Host is one process on the network. Make one with [Net.Start].
type Host struct {
	net *Net
	ip  string

	packets chan *memberlist.Packet
	streams chan net.Conn
	gone    chan struct{}

	mu      sync.Mutex
	handler Handler
	down    bool
}

// GossipPort is the port that all hosts gossip at.
const GossipPort = 7946

// Start begins a process on the host with this address, in place of the one that was there before.
func (n *Net) Start(ip string) *Host {
	h := &Host{
		net: n, ip: ip, packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn, 16), gone: make(chan struct{}),
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

// Stop ends the process: nothing is delivered to it, and nothing from it, any more. Calls under way get no answer.
func (h *Host) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.down {
		h.down = true
		close(h.gone)
	}
}

// Serve sets what answers calls to this host.
func (h *Host) Serve(handler Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler = handler
}

// enter returns the handler for a call that has arrived, nil if nothing listens.
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

// Call sends a request and returns the reply. If the error is [ErrRefused] the request was not delivered; otherwise nobody
// knows.
func (h *Host) Call(ctx context.Context, to string, request []byte) ([]byte, error) {
	_, loss := h.net.losses()
	d, ok := h.net.passes(h.ip, to, Calls, loss)
	if !ok || h.isDown() {
		return h.wait(ctx)
	}
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	peer := h.net.host(to)
	if peer == nil {
		return nil, fmt.Errorf("%w by %s", ErrRefused, to)
	}
	handler := peer.enter()
	if handler == nil {
		return nil, fmt.Errorf("%w by %s", ErrRefused, to)
	}
	replies := make(chan []byte, 1)
	request = slices.Clone(request) // the caller may go on before it is handled
	go func() { replies <- handler(request) }()
	select {
	case reply := <-replies:
		d, ok := h.net.passes(to, h.ip, Calls, loss)
		if !ok || peer.isDown() || h.isDown() {
			return h.wait(ctx)
		}
		return reply, sleep(ctx, d)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.gone:
		return nil, errGone
	}
}

var errGone = errors.New("simnet: this process is gone")

// wait is what a caller does whose message got lost.
func (h *Host) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.gone:
		return nil, errGone
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Address is the host's address for gossip.
func (h *Host) Address() string { return net.JoinHostPort(h.ip, strconv.Itoa(GossipPort)) }
