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

// Peer handles messages from other nodes.
type Peer interface {
	// Admit checks the pass of a message, and its size, before any of it is read. An error says
	// that the sender is not a node of this cluster.
	Admit(pass string, size int) error
	// Handle takes one message, which it may modify, and returns the reply. An error says that the
	// message is not from a node of this cluster.
	Handle(ctx context.Context, message []byte) (reply []byte, err error)
}

const (
	// peerPath is where nodes send each other messages.
	peerPath = "/peer"
	// maxPeerBody bounds a message.
	maxPeerBody = 4 << 20
	// peerMedia is a media type that a page of another site can't send without a preflight request.
	peerMedia = "application/x-twotier-peer"
	// headerPass carries the proof that the sender of a message is a node.
	headerPass = "Twotier-Pass"
)

// admitPeer lets only nodes send messages. Reading messages takes no memory from clients.
func (s *Server) admitPeer(ctx *fasthttp.RequestCtx) *problem {
	h := &ctx.Request.Header
	if string(h.ContentType()) != peerMedia {
		return &problem{kind: kindMediaType, detail: "this path is for the other nodes"}
	}
	if err := s.opts.Peer.Admit(string(h.Peek(headerPass)), h.ContentLength()); err != nil {
		return notOfCluster()
	}
	memoryOf(ctx).chargeNode(&s.nodes)
	return nil
}

func notOfCluster() *problem {
	return &problem{kind: kindForbidden, detail: "not a message of this cluster"}
}

// peer handles a message from another node.
func (s *Server) peer(ctx *fasthttp.RequestCtx) *problem {
	reply, err := s.opts.Peer.Handle(context.Background(), ctx.PostBody())
	if err != nil {
		return notOfCluster()
	}
	ctx.SetContentType(peerMedia)
	ctx.Response.SetBodyRaw(reply)
	return nil
}

// PeerTransport sends messages to other nodes over HTTP connections that are kept open. Its methods
// may be called concurrently.
type PeerTransport struct {
	// TLS is used for addresses that begin with https://; set it before the first use. Default:
	// accept any certificate and present none.
	TLS  *tls.Config
	pass func(size int) string

	mu    sync.Mutex
	hosts map[string]*fasthttp.HostClient
}

// NewPeerTransport returns a transport without connections. pass returns, for the size of a
// message, the pass that [Peer].Admit checks.
func NewPeerTransport(pass func(size int) string) *PeerTransport {
	return &PeerTransport{pass: pass, hosts: map[string]*fasthttp.HostClient{}}
}

// Bounds of the connections to one node.
const (
	maxPeerConns  = 64
	peerIdle      = 5 * time.Second // an idle connection also keeps a goroutine
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

// secureScheme prefixes addresses that use TLS.
const secureScheme = "https://"

// Send sends a message to a host:port, prefixed with https:// for TLS, and returns the reply. An
// error says whether the message certainly did not arrive: see package internal/rpc.
func (t *PeerTransport) Send(ctx context.Context, address string, message []byte) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType(peerMedia)
	req.Header.Set(headerPass, t.pass(len(message)))
	// The dialer adds TLS.
	req.SetRequestURI("http://" + strings.TrimPrefix(address, secureScheme) + peerPath)
	req.SetBodyRaw(message)
	by, ok := ctx.Deadline()
	if !ok {
		by = time.Now().Add(time.Minute)
	}
	err := errStale
	for range maxPeerConns + 1 { // at worst all connections that were kept are stale
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
			clear(t.hosts) // connections in use end by themselves
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

// dialer returns a function that connects to an address.
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

// shakeHands starts TLS on a connection.
func shakeHands(c *peerConn, cfg *tls.Config, by time.Time) (net.Conn, error) {
	if cfg == nil {
		cfg = &tls.Config{InsecureSkipVerify: true} // messages are encrypted anyway
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

// dialPeer connects to an address. Nothing was sent if it fails, and the error says whether the
// address did not respond or refused the connection.
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

// peerConn is a connection that refuses to send if the other side closed it while it was idle. A
// message lost on such a connection would have an unknown outcome.
type peerConn struct {
	net.Conn
	raw net.Conn // beneath TLS
	// fresh means that nothing was sent yet. Until then, data to read belongs to the TLS handshake.
	fresh bool
}

// errStale says that nothing was sent.
var errStale = errors.New("the connection was closed while it was idle")

// Write begins a message: everything sent before has been answered.
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
