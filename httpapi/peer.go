package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/idle"
	"twotier.dev/twotier/internal/rpc"
)

// Peer takes the messages of other nodes; package peer has the real one.
type Peer interface {
	// Admit looks at what the sender of a message shows before any of it is read. An error says
	// that it is no node of this cluster.
	Admit(pass string, size int) error
	// Handle takes one message, which it may change, and returns the reply. An error says that the
	// message is not from a node of this cluster.
	Handle(ctx context.Context, message []byte) (reply []byte, err error)
}

const (
	// peerPath is where nodes take each other's messages.
	peerPath = "/peer"
	// maxPeerBody bounds a message.
	maxPeerBody = 4 << 20
	// peerMedia is not a type that a page of another site may send without asking.
	peerMedia = "application/x-twotier-peer"
	// headerPass holds the proof that the sender of a message is a node.
	headerPass = "Twotier-Pass"
)

// admitPeer has only nodes send a message. What is read of them is not taken from what there is for
// clients.
func (s *Server) admitPeer(ctx *fasthttp.RequestCtx) *problem {
	h := &ctx.Request.Header
	if string(h.ContentType()) != peerMedia {
		return &problem{kind: kindMediaType, detail: "this path is for the other nodes"}
	}
	if err := s.opts.Peer.Admit(string(h.Peek(headerPass)), h.ContentLength()); err != nil {
		return notOfCluster()
	}
	holdOf(ctx).ofNode(&s.nodes)
	return nil
}

func notOfCluster() *problem {
	return &problem{kind: kindForbidden, detail: "not a message of this cluster"}
}

// peer takes a message of another node.
func (s *Server) peer(ctx *fasthttp.RequestCtx) *problem {
	reply, err := s.opts.Peer.Handle(context.Background(), ctx.PostBody())
	if err != nil {
		return notOfCluster()
	}
	ctx.SetContentType(peerMedia)
	ctx.Response.SetBodyRaw(reply)
	return nil
}

// PeerTransport carries messages to other nodes, over HTTP connections that are kept. Its methods
// may be called at the same time.
type PeerTransport struct {
	// TLS is how to talk to addresses that begin with https://; set it before the first use.
	// Default: any certificate will do, and none is presented.
	TLS  *tls.Config
	pass func(size int) string

	mu    sync.Mutex
	hosts map[string]*fasthttp.HostClient
}

// NewPeerTransport returns a transport without connections. What pass returns for the size of a
// message is what [Peer].Admit gets.
func NewPeerTransport(pass func(size int) string) *PeerTransport {
	return &PeerTransport{pass: pass, hosts: map[string]*fasthttp.HostClient{}}
}

// Bounds of the connections to one node.
const (
	maxPeerConns  = 64
	peerIdle      = 5 * time.Second // its end is the end of a goroutine, too
	maxPeerHosts  = 1024
	peerKeepAlive = 15 * time.Second
)

// Close closes all connections that are not in use.
func (t *PeerTransport) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		h.CloseIdleConnections()
	}
}

// secureScheme begins an address that is talked to by TLS; others are plain.
const secureScheme = "https://"

// Send sends a message to a host:port, with https:// in front if it asks for TLS, and returns the
// reply. Its errors are those of peer.Transport.
func (t *PeerTransport) Send(ctx context.Context, address string, message []byte) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType(peerMedia)
	req.Header.Set(headerPass, t.pass(len(message)))
	// TLS is the business of whoever dials.
	req.SetRequestURI("http://" + strings.TrimPrefix(address, secureScheme) + peerPath)
	req.SetBodyRaw(message)
	by, ok := ctx.Deadline()
	if !ok {
		by = time.Now().Add(time.Minute)
	}
	err := errStale
	for range maxPeerConns + 1 { // at the worst all that are kept are stale
		if err = t.host(address).DoDeadline(req, resp, by); !errors.Is(err, errStale) {
			break
		}
	}
	if errors.Is(err, errStale) {
		err = fmt.Errorf("%w: %w", rpc.ErrUnreachable, err)
	}
	if err != nil {
		return nil, err
	}
	if code := resp.StatusCode(); code != fasthttp.StatusOK {
		err := fmt.Errorf("%s answers %d: %s", address, code, clip(resp.Body()))
		if code == fasthttp.StatusForbidden || code == fasthttp.StatusNotFound ||
			code == fasthttp.StatusServiceUnavailable {
			err = fmt.Errorf("%w: %w", rpc.ErrRefused, err)
		}
		return nil, err
	}
	return append([]byte(nil), resp.Body()...), nil
}

// host returns the connections to an address.
func (t *PeerTransport) host(address string) *fasthttp.HostClient {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[address]
	if h == nil {
		if len(t.hosts) >= maxPeerHosts {
			clear(t.hosts) // those in use end by themselves
		}
		h = &fasthttp.HostClient{
			Addr: strings.TrimPrefix(address, secureScheme), MaxConns: maxPeerConns,
			MaxIdleConnDuration: peerIdle, MaxIdemponentCallAttempts: 1,
			NoDefaultUserAgentHeader: true, DisablePathNormalizing: true,
			MaxResponseBodySize: maxPeerBody,
			DialTimeout:         t.dialer(address),
			RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) {
				return false, false
			},
		}
		t.hosts[address] = h
	}
	return h
}

// dialer returns how to connect to an address.
func (t *PeerTransport) dialer(address string) fasthttp.DialFuncWithTimeout {
	if !strings.HasPrefix(address, secureScheme) {
		return dialPeer
	}
	return func(address string, timeout time.Duration) (net.Conn, error) {
		by := time.Now().Add(timeout)
		c, err := dialPeer(address, timeout)
		if err != nil {
			return nil, err
		}
		return shakeHands(c.(*peerConn), t.TLS, by)
	}
}

// shakeHands makes a connection one of TLS.
func shakeHands(c *peerConn, cfg *tls.Config, by time.Time) (net.Conn, error) {
	if cfg == nil {
		cfg = &tls.Config{InsecureSkipVerify: true} // what is said is sealed
	}
	secure := tls.Client(c.Conn, cfg)
	ctx, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", rpc.ErrLate, err)
		}
		return nil, fmt.Errorf("%w: %w", rpc.ErrUnreachable, err)
	}
	c.Conn, c.fresh = secure, true
	return c, nil
}

// dialPeer connects, or says that nothing was sent, and whether the address is silent or refuses.
func dialPeer(address string, timeout time.Duration) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: timeout, KeepAlive: peerKeepAlive}).Dial("tcp", address)
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return nil, fmt.Errorf("%w: %w", rpc.ErrLate, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpc.ErrUnreachable, err)
	}
	return &peerConn{Conn: c, raw: c}, nil
}

// peerConn is a connection that is not written to if the other side has closed it while it was
// idle: that a message is lost on one would leave its outcome unknown.
type peerConn struct {
	net.Conn
	raw net.Conn // beneath TLS
	// fresh means that nothing was asked yet: if there is something to read, it is the part of TLS
	// that comes before the first answer.
	fresh bool
}

// errStale says that nothing was sent.
var errStale = errors.New("the connection was closed while it was idle")

// Write begins a message: whatever was asked before is answered.
func (c *peerConn) Write(b []byte) (int, error) {
	if !c.fresh && idle.Closed(c.raw) {
		return 0, errStale
	}
	return c.Conn.Write(b)
}

// Read reads an answer.
func (c *peerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.fresh = c.fresh && n == 0
	return n, err
}
