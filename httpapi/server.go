package httpapi

import (
	"container/list"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Errors of a server's life.
var (
	// ErrOpened is returned by Open if the server was opened or closed before.
	ErrOpened = errors.New("server was opened or closed before")
)

// Options configure a [Server]. The zero value of each field is the documented default.
type Options struct {
	// Service answers the requests. It has no default.
	Service Service
	// Peer takes messages of other nodes. Default: none, and there is no such path.
	Peer Peer
	// Tokens knows who may do what. Default: anyone who can connect may do everything but administer.
	Tokens Tokens
	// AdminToken may do everything, and is what calls that change how the cluster works must present where there are no Tokens.
	// Default: none, and without Tokens those calls are refused.
	AdminToken string
	// Hosts are names that the server answers to besides localhost and addresses. Names are looked at if there are any, and on
	// loopback; they are not where there are Tokens.
	Hosts []string
	// Listen is the TCP address, IPv4, IPv6 or a name; port 0 picks a free one. Default 127.0.0.1:8080.
	Listen string
	// Admin is where calls that need the role admin are served, but for reset, and besides them profiles (/debug/pprof/), in place of Listen.
	// Default: where Listen is, and without profiles. PeerListen is where messages of other nodes are taken. Default: where Listen is.
	Admin, PeerListen string
	// TLS is what all addresses ask of those who connect. Default: none, connections are plain.
	TLS *tls.Config
	// RequestTimeout bounds the execution of one request. Default 2s.
	RequestTimeout time.Duration
	// ReadTimeout bounds the arrival of one request from its first byte on, WriteTimeout the sending of one answer.
	// Default 10s each.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests. Default 75s.
	IdleTimeout time.Duration
	// MaxConns bounds the open connections; one more is answered 503 and closed. Default 16384.
	MaxConns int
	// Logger takes state changes and panics. Default: none.
	Logger *slog.Logger
}

// withDefaults returns o with its defaults filled in, or why it can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Service == nil {
		return o, errors.New("httpapi: Options.Service is missing")
	}
	if o.MaxConns < 0 {
		return o, fmt.Errorf("httpapi: Options.MaxConns is %d, want 1 or more", o.MaxConns)
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:8080"
	}
	if o.MaxConns == 0 {
		o.MaxConns = 16384
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"RequestTimeout", &o.RequestTimeout, 2 * time.Second},
		{"ReadTimeout", &o.ReadTimeout, 10 * time.Second},
		{"WriteTimeout", &o.WriteTimeout, 10 * time.Second},
		{"IdleTimeout", &o.IdleTimeout, 75 * time.Second},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("httpapi: Options.%s is %v, want more than 0", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.preset
		}
	}
	return o, nil
}

// Server serves the HTTP API of one node.
type Server struct {
	opts      Options
	service   Service
	log       *slog.Logger
	http      *fasthttp.Server
	routes    map[string]route // of all doors
	exchanges sync.Pool        // of *exchange
	access    access
	codes     [600]atomic.Int64
	process   string // no other process has the name
	sessions  sessions
	closing   atomic.Bool

	serving   sync.WaitGroup // connections and the acceptor
	closeOnce sync.Once
	closeErr  error

	mu     sync.Mutex
	doors  []*door // their listeners
	opened bool
	conns  map[*conn]struct{}
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, service: o.Service, log: o.Logger, conns: make(map[*conn]struct{}), process: rand.Text()}
	s.access = newAccess(&o)
	s.sessions.named = make(map[string]*list.Element)
	s.exchanges.New = func() any { return new(exchange) }
	s.routes = s.routeTable()
	s.doors = s.makeDoors()
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.unreadable,
		HeaderReceived:               s.bodyLimit,
		ConnState:                    connState,
		Logger:                       silent{},
		Concurrency:                  o.MaxConns + 1,
		ReadBufferSize:               8 << 10, // also the most that a request's header may take
		ReadTimeout:                  o.ReadTimeout,
		WriteTimeout:                 o.WriteTimeout,
		IdleTimeout:                  o.IdleTimeout,
		MaxRequestBodySize:           maxBody,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true, // its clock is a goroutine that never ends
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
	}
	return s, nil
}

// silent takes what fasthttp would print to stderr; what matters of it comes back as errors.
type silent struct{}

// Printf does nothing.
func (silent) Printf(string, ...any) {}

// bodyLimit lets a batch be larger than other requests, and a message of another node, if there can be any. A body that is more than a
// few lines is not read at all if its sender may not use the route.
func (s *Server) bodyLimit(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if n := h.ContentLength(); (n > smallBody || n < 0) && s.unwelcome(h) != nil {
		return fasthttp.RequestConfig{MaxRequestBodySize: 1}
	}
	const batch = "/v1/batch"
	uri := h.RequestURI()
	switch {
	case len(uri) >= len(batch) && string(uri[:len(batch)]) == batch:
		return fasthttp.RequestConfig{MaxRequestBodySize: maxBatchBody}
	case s.opts.Peer != nil && string(uri) == peerPath:
		return fasthttp.RequestConfig{MaxRequestBodySize: maxPeerBody}
	}
	return fasthttp.RequestConfig{}
}

// smallBody is what is read before it is known who sends it: the answer comes sooner than it would otherwise.
const smallBody = 1 << 10

// unwelcome returns why the sender of a header may not use the route that it asks for, nil if it may, or there is none.
func (s *Server) unwelcome(h *fasthttp.RequestHeader) *problem {
	r, ok := s.routes[string(exactPath(h.RequestURI()))]
	if !ok {
		return nil
	}
	_, p := s.access.enter(h, &r)
	return p
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Open listens and starts to serve. ctx bounds the listening itself only.
func (s *Server) Open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened || s.closing.Load() {
		return ErrOpened
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	s.opened = true
	for _, d := range s.doors {
		ln := d.listener
		s.serving.Go(func() { s.runAccept(ln, d) })
	}
	return nil
}

// Close stops accepting, closes idle connections, lets requests that have begun finish, and returns when nothing of the
// server's runs any more. Requests that are still arriving have a second for it. When ctx ends first, connections are
// cut and ctx's error is part of the result; handlers are waited for all the same, at most RequestTimeout. Close may
// be called again and then returns the same.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.shut(ctx) })
	return s.closeErr
}

// drainGrace is what a request that has begun to arrive is given when the server closes.
const drainGrace = time.Second

func (s *Server) shut(ctx context.Context) error {
	s.mu.Lock()
	s.closing.Store(true)
	err := s.shutDoors()
	by := time.Now().Add(drainGrace)
	for c := range s.conns {
		c.drain(by)
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
		s.cut()
		<-done
	}
	return err
}

// cut closes every connection, whatever it is doing.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Conn.Close()
	}
}

// runAccept serves each connection in a goroutine of its own until the listener is closed. fasthttp's own loop is not
// used: its pool of workers outlives Shutdown by up to ten seconds.
func (s *Server) runAccept(ln net.Listener, d *door) {
	wait := time.Duration(0)
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			wait = 0
			s.accept(nc, d)
		case s.closing.Load(), errors.Is(err, net.ErrClosed):
			return
		default: // out of file descriptors, most likely
			if wait == 0 {
				s.log.Error("can't accept connections", "err", err)
			}
			wait = min(wait+5*time.Millisecond, time.Second)
			time.Sleep(wait)
		}
	}
}

// accept serves nc, or turns it away if there are too many connections.
func (s *Server) accept(nc net.Conn, d *door) {
	c := &conn{Conn: s.secure(nc), door: d}
	s.mu.Lock()
	full, closing := len(s.conns) >= s.opts.MaxConns, s.closing.Load()
	if !full && !closing {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	switch {
	case closing:
		nc.Close()
	case full:
		s.turnAway(nc)
	default:
		s.serving.Go(func() { s.runConn(c) })
	}
}

func (s *Server) runConn(c *conn) {
	// What it returns is this connection's trouble: a client that left, a timeout.
	_ = s.http.ServeConn(c)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// turnAway answers 503. The answer fits into the empty buffer of a new socket, so that the acceptor does not wait.
func (s *Server) turnAway(nc net.Conn) {
	p := problem{kind: kindUnavailable, detail: "too many connections to this node"}
	body := p.appendJSON(nil)
	s.codes[p.kind.status].Add(1)
	if s.opts.TLS != nil { // to say anything would take a handshake
		nc.Close()
		return
	}
	_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(nc, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"+
		"Content-Type: application/problem+json\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+string(body))
	nc.Close()
}
