package httpapi

import (
	"container/list"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	// Tokens knows who may do what. Default: anyone who can connect may do everything but
	// administer.
	Tokens Tokens
	// AdminToken may do everything, and is what calls that change how the cluster works must
	// present where there are no Tokens. Default: none, and without Tokens those calls are refused.
	AdminToken string
	// Hosts are names that the server answers to besides localhost and addresses. Names are looked
	// at if there are any, and on loopback; they are not where there are Tokens.
	Hosts []string
	// Listen is the TCP address, IPv4, IPv6 or a name; port 0 picks a free one. Default
	// 127.0.0.1:8080.
	Listen string
	// Admin is where calls that need the role admin are served, but for reset, and besides them
	// profiles (/debug/pprof/), in place of Listen. Default: where Listen is, and without profiles.
	// PeerListen is where messages of other nodes are taken. Default: where Listen is.
	Admin, PeerListen string
	// TLS is what all addresses ask of those who connect. Default: none, connections are plain.
	TLS *tls.Config
	// RequestTimeout bounds the execution of one request. Default 2s.
	RequestTimeout time.Duration
	// ReadTimeout bounds the arrival of one request from its first byte on, WriteTimeout the
	// sending of one answer. Default 10s each.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests. Default 75s.
	IdleTimeout time.Duration
	// MaxMemory is about how many bytes connections, what is read from them, what is answered to
	// them, and what is remembered of sessions may take, all together. Default 160 MiB.
	MaxMemory int64
	// MaxConns bounds the open connections; one more is answered 503 and closed. Default: as many
	// as 7/16 of MaxMemory are enough for, at 5 KiB each, 37 KiB with TLS. Admin and
	// PeerListen have some of their own: see InnerConns.
	MaxConns int
	// MaxConnsPerAddress bounds those of one IPv4 address or IPv6 network (/64). An address may
	// have the same part of the memory. Default: half of MaxConns.
	MaxConnsPerAddress int
	// Logger takes state changes and panics. Default: none.
	Logger *slog.Logger
}

// withDefaults returns o with its defaults filled in, or why it can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Service == nil {
		return o, errors.New("httpapi: Options.Service is missing")
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:8080"
	}
	if err := o.fillBounds(); err != nil {
		return o, err
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

// What a connection takes, about: a goroutine while it is parked, and those of TLS; buffers to read
// and write and a header beside while it is not.
const (
	connBytes  = 5 << 10
	tlsBytes   = 32 << 10
	awakeBytes = 12 << 10
)

// ConnsFor returns how many connections there are at the most by default for a [Options].MaxMemory
// of so many bytes.
func ConnsFor(bytes int64, secure bool) int {
	each := int64(connBytes)
	if secure {
		each += tlsBytes
	}
	return int(min(bytes/16*7/each, math.MaxInt32))
}

// leastInner is how many connections Admin and PeerListen may have at the least, unless Listen has
// less.
const leastInner = 64

// InnerConns returns how many connections Admin may have, and PeerListen as many again, for a
// [Options].MaxConns of so many.
func InnerConns(conns int) int { return min(conns, max(leastInner, conns/16)) }

// fillBounds fills in the defaults of what bounds connections and their memory.
func (o *Options) fillBounds() error {
	if o.MaxMemory == 0 {
		o.MaxMemory = 160 << 20
	}
	if o.MaxConns == 0 {
		o.MaxConns = ConnsFor(o.MaxMemory, o.TLS != nil)
	}
	if o.MaxConnsPerAddress == 0 {
		o.MaxConnsPerAddress = max(1, o.MaxConns/2)
	}
	switch {
	case o.MaxMemory < 1<<20:
		return fmt.Errorf("httpapi: Options.MaxMemory is %d, want at least 1 MiB", o.MaxMemory)
	case o.MaxConns < 1:
		return fmt.Errorf("httpapi: Options.MaxConns is %d, want 1 or more", o.MaxConns)
	case o.MaxConnsPerAddress < 1 || o.MaxConnsPerAddress > o.MaxConns:
		return fmt.Errorf("httpapi: Options.MaxConnsPerAddress is %d, want 1 to %d",
			o.MaxConnsPerAddress, o.MaxConns)
	}
	return nil
}

// Server serves the HTTP API of one node.
type Server struct {
	opts      Options
	service   Service
	log       *slog.Logger
	http      *fasthttp.Server
	routes    map[string]route // of all doors
	access    access
	exchanges exchanges
	allowance *allowance
	nodes     account   // what is read of other nodes
	bodies    sync.Pool // of *[pooledBody]byte
	codes     [600]atomic.Int64
	process   string // no other process has the name
	sessions  sessions
	closing   atomic.Bool
	ending    context.Context // done when the server closes
	end       context.CancelFunc

	serving   sync.WaitGroup // connections and the acceptor
	closeOnce sync.Once
	closeErr  error

	registry *prometheus.Registry
	scraping sync.Mutex // held while a page of metrics is made

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
	s := &Server{opts: o, service: o.Service, log: o.Logger, conns: make(map[*conn]struct{}),
		process: rand.Text()}
	s.ending, s.end = context.WithCancel(context.Background())
	s.access = newAccess(&o)
	s.sessions.named, s.sessions.most = make(map[string]*list.Element),
		int(min(maxSessionBytes, o.MaxMemory/5))
	s.exchanges = newExchanges(o.MaxMemory / 8)
	s.bodies.New = func() any { return new([pooledBody]byte) }
	s.allowance = newAllowance(o.MaxConns, o.MaxConnsPerAddress, o.MaxMemory/2)
	s.nodes.most = max(o.MaxMemory/8, 2*maxPeerBody)
	s.nodes.each = s.nodes.most
	s.registry = s.newRegistry()
	s.routes = s.routeTable()
	s.doors = s.makeDoors()
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.unreadable,
		ConnState:                    connState,
		Logger:                       silent{},
		Concurrency:                  o.MaxConns + 2*InnerConns(o.MaxConns) + 1,
		ReadBufferSize:               8 << 10, // also the most that a request's header may take
		ReadTimeout:                  o.ReadTimeout,
		WriteTimeout:                 o.WriteTimeout,
		IdleTimeout:                  o.IdleTimeout,
		StreamRequestBody:            true, // bodies are read by readBody
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

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Open listens and starts to serve. ctx bounds the listening itself only.
func (s *Server) Open(ctx context.Context) error { return s.open(ctx) }

// OpenOn is Open with a listener for everyone that was made elsewhere, in place of that at
// Options.Listen: one that a supervisor handed over, or of another kind than TCP. Close closes it.
func (s *Server) OpenOn(ctx context.Context, ln net.Listener) error {
	s.mu.Lock()
	if !s.opened && !s.closing.Load() {
		s.doors[0].listener = ln
	}
	s.mu.Unlock()
	return s.open(ctx)
}

func (s *Server) open(ctx context.Context) error {
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

// Close stops accepting, closes idle connections, lets requests that have begun finish, and returns
// when nothing of the server's runs any more. Requests that are still arriving have a second for
// it. When ctx ends first, connections are cut and ctx's error is part of the result; handlers are
// waited for all the same, at most RequestTimeout. Close may be called again and then returns the
// same.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.shut(ctx) })
	return s.closeErr
}

// drainGrace is what a request that has begun to arrive is given when the server closes.
const drainGrace = time.Second

func (s *Server) shut(ctx context.Context) error {
	s.mu.Lock()
	s.closing.Store(true)
	s.end()
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
