package peerhttp

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

// Constants that both sides of a connection between nodes share.
const (
	// Path is the path to which nodes send messages.
	Path = "/peer"
	// MaxBody bounds a message, in bytes.
	MaxBody = 4 << 20
	// MaxReply bounds a reply, in bytes. A message asks for at most some 500,000 windows, and its
	// reply has up to 41 bytes for each.
	MaxReply = 32 << 20
	// Media is a type that a page of another site can't send without a preflight request.
	Media = "application/x-twotier-peer"
	// HeaderPass carries the proof that the sender of a message is a node.
	HeaderPass = "Twotier-Pass"
)

// Transport sends messages to other nodes over HTTP connections that are kept open. Its methods may
// be called concurrently.
type Transport struct {
	// TLS is used for addresses that begin with https://; set it before the first use. Default:
	// accept any certificate and present none.
	TLS  *tls.Config
	pass func(size int) string

	mu    sync.Mutex
	hosts map[string]*fasthttp.HostClient
}

// New returns a transport without connections. pass returns, for the size of a message, the pass
// that httpapi.Peer.Admit checks.
func New(pass func(size int) string) *Transport {
	return &Transport{pass: pass, hosts: map[string]*fasthttp.HostClient{}}
}

// Bounds of the connections to one node.
const (
	maxConns    = 64
	idleTimeout = 5 * time.Second // an idle connection also keeps a goroutine
	maxHosts    = 1024
	keepAlive   = 15 * time.Second
	// writeBuffer holds most messages with their header. A message written in two parts wakes its
	// receiver twice.
	writeBuffer = 64 << 10
)

// Close closes all idle connections.
func (t *Transport) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		h.CloseIdleConnections()
	}
}

// secureScheme prefixes addresses that use TLS.
const secureScheme = "https://"

// Send sends a message to a host:port, prefixed with https:// for TLS, and returns the reply. An
// error reports whether the message certainly did not arrive: see package internal/rpc.
func (t *Transport) Send(ctx context.Context, address string, message []byte) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType(Media)
	req.Header.Set(HeaderPass, t.pass(len(message)))
	// The dialer adds TLS.
	req.SetRequestURI("http://" + strings.TrimPrefix(address, secureScheme) + Path)
	req.SetBodyRaw(message)
	by, ok := ctx.Deadline()
	if !ok {
		by = time.Now().Add(time.Minute)
	}
	err := errStale
	for range maxConns + 1 { // at worst all connections that were kept are stale
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
		err := fmt.Errorf("%s answers %d: %.64s", address, code, resp.Body())
		if code == fasthttp.StatusForbidden || code == fasthttp.StatusNotFound ||
			code == fasthttp.StatusServiceUnavailable || code == fasthttp.StatusTooManyRequests {
			err = fmt.Errorf("%w: %w", rpc.ErrRefused, err)
		}
		return nil, err
	}
	return append([]byte(nil), resp.Body()...), nil
}

func (t *Transport) host(address string) *fasthttp.HostClient {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[address]
	if h == nil {
		if len(t.hosts) >= maxHosts {
			clear(t.hosts) // connections in use end by themselves
		}
		h = &fasthttp.HostClient{
			Addr: strings.TrimPrefix(address, secureScheme), MaxConns: maxConns,
			MaxIdleConnDuration: idleTimeout, MaxIdemponentCallAttempts: 1,
			NoDefaultUserAgentHeader: true, DisablePathNormalizing: true,
			MaxResponseBodySize: MaxReply, WriteBufferSize: writeBuffer,
			DialTimeout: t.dialer(address),
			RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) {
				return false, false
			},
		}
		t.hosts[address] = h
	}
	return h
}

func (t *Transport) dialer(address string) fasthttp.DialFuncWithTimeout {
	if !strings.HasPrefix(address, secureScheme) {
		return dial
	}
	return func(address string, timeout time.Duration) (net.Conn, error) {
		by := time.Now().Add(timeout)
		c, err := dial(address, timeout)
		if err != nil {
			return nil, err
		}
		return handshake(c.(*conn), t.TLS, by)
	}
}

func handshake(c *conn, cfg *tls.Config, by time.Time) (net.Conn, error) {
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

// dial connects to an address. If it fails, nothing was sent, and the error reports whether the
// address did not respond or refused the connection.
func dial(address string, timeout time.Duration) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: timeout, KeepAlive: keepAlive}).Dial("tcp", address)
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return nil, fmt.Errorf("%w: %w", rpc.ErrLate, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpc.ErrUnreachable, err)
	}
	return &conn{Conn: c, raw: c}, nil
}

// conn is a connection that refuses to send if the other side closed it while it was idle. A
// message lost on such a connection would have an unknown outcome.
type conn struct {
	net.Conn
	raw net.Conn // beneath TLS
	// fresh means that nothing has been sent yet. Until then, data to read belongs to the TLS
	// handshake.
	fresh bool
}

// errStale reports that nothing was sent.
var errStale = errors.New("the connection was closed while it was idle")

// Write begins a message: everything sent before has been answered.
func (c *conn) Write(b []byte) (int, error) {
	if !c.fresh && idle.Closed(c.raw) {
		return 0, errStale
	}
	return c.Conn.Write(b)
}

// Read reads an answer.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.fresh = c.fresh && n == 0
	return n, err
}
