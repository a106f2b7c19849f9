package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/forwarded"
	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
)

// Errors of a server's life.
var (
	// ErrOpened is returned by Open if the server has been opened or closed before.
	ErrOpened = listener.ErrOpened
)

// Options configure a [Server]. The zero value of each field is the documented default.
type Options struct {
	// Service executes the requests. Required.
	Service Service
	// Peer handles messages from other nodes. Default: none, and the path does not exist.
	Peer Peer
	// Tokens resolves bearer tokens. Default: anyone who can connect may do everything except
	// administer.
	Tokens ask.Tokens
	// Rules resolves the names of rules in requests. Default: none, and no name is known.
	Rules ask.Rules
	// Shadow determines the namespaces in which limits of requests refuse nothing. Default: none.
	// The limits of rules depend on Rules alone.
	Shadow twotier.Shadow
	// Holds makes and settles holds. Default: none.
	Holds *ask.Holds
	// Verdicts counts and records the verdicts on acquires. Default: nothing is.
	Verdicts *verdicts.Counters
	// Tracer records a span of each request that is part of a sampled trace. Default: none.
	Tracer trace.Tracer
	// RuleBook keeps the document of rules. Default: none, and its path does not exist.
	RuleBook RuleBook
	// Backtester predicts the effect of rules. Default: none, and its path does not exist, nor does
	// it without RuleBook.
	Backtester Backtester
	// Story is the story of a demonstration, which the page shows and steers with the AdminToken.
	// It needs a Listen on loopback. Default: none, and its path does not exist.
	Story Story
	// RateLimiter answers POST /json. Default: none, and the path does not exist.
	RateLimiter RateLimiter
	// TrustedProxies are the networks of proxies whose X-Forwarded-For is believed for the client's
	// address in /v1/forward-auth. Default: none.
	TrustedProxies []netip.Prefix
	// Warnings holds the probable mistakes in this node's configuration. Default: nothing is
	// reported.
	Warnings Warnings
	// AdminToken may do everything. Without Tokens it is required for calls that change how the
	// cluster works. Default: none; without Tokens those calls are refused.
	AdminToken string
	// Hosts are the accepted names in a request's Host header, in addition to localhost and
	// addresses. The header is checked if there are any Hosts, and on loopback; it is never checked
	// if there are Tokens.
	Hosts []string
	// Listen is the TCP address, IPv4, IPv6 or a name; port 0 picks a free one. Default
	// 127.0.0.1:8080.
	Listen string
	// Admin is the address for calls that require the role admin, except reset, and for profiles
	// (/debug/pprof/). Default: the calls are served at Listen, and there are no profiles.
	// PeerListen is the address for messages from other nodes. Default: Listen.
	Admin, PeerListen string
	// TLS is used on all addresses. Default: none, connections are plain.
	TLS *tls.Config
	// RequestTimeout bounds the execution of one request. Default 2s.
	RequestTimeout time.Duration
	// ReadTimeout bounds receiving one request, from its first byte; WriteTimeout bounds sending
	// one answer. Default 10s each.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests. Default 75s.
	IdleTimeout time.Duration
	// MaxMemory bounds the bytes used by connections, request bodies, answers and sessions
	// together, approximately. Default 160 MiB.
	MaxMemory int64
	// MaxConns bounds the open connections; one more is answered 429 and closed. Default: as many
	// as fit in 7/16 of MaxMemory at 5 KiB each, 37 KiB with TLS. Admin and PeerListen have
	// separate bounds: see [InnerConns].
	MaxConns int
	// MaxConnsPerAddress bounds the connections of one IPv4 address or IPv6 network (/64). An
	// address may use the same share of the memory. Default: half of MaxConns.
	MaxConnsPerAddress int
	// Collectors add to the metrics in /metrics. Their names must differ from the server's.
	Collectors []prometheus.Collector
	// Logger receives changes of state and panics. Default: none.
	Logger *slog.Logger
}

// withDefaults returns o with its defaults filled in, or an error if it can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Service == nil {
		return o, errors.New("httpapi: Options.Service is missing")
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:8080"
	}
	if o.Story != nil && !hostname.IsLoopback(o.Listen) {
		return o, fmt.Errorf("httpapi: Options.Story is set, and Listen is %s; want loopback",
			o.Listen)
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = 160 << 20
	}
	if o.MaxMemory < 1<<20 {
		return o, fmt.Errorf("httpapi: Options.MaxMemory is %d, want at least 1 MiB", o.MaxMemory)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	err := listener.Bounds{RequestTimeout: &o.RequestTimeout, ReadTimeout: &o.ReadTimeout,
		WriteTimeout: &o.WriteTimeout, IdleTimeout: &o.IdleTimeout, MaxConns: &o.MaxConns,
		MaxConnsPerAddress: &o.MaxConnsPerAddress,
	}.Fill("httpapi", 75*time.Second, ConnsFor(o.MaxMemory, o.TLS != nil))
	return o, err
}

// Approximate memory of a parked connection: connBytes for a goroutine, and tlsBytes for TLS.
const (
	connBytes = 5 << 10
	tlsBytes  = 32 << 10
)

// ConnsFor returns the default of [Options].MaxConns for a [Options].MaxMemory of this many bytes.
func ConnsFor(bytes int64, secure bool) int {
	each := int64(connBytes)
	if secure {
		each += tlsBytes
	}
	return int(min(bytes/16*7/each, math.MaxInt32))
}

// leastInner is the minimum number of connections for Admin and PeerListen each, unless Listen has
// fewer.
const leastInner = 64

// InnerConns returns the number of connections for Admin, and again for PeerListen, with this
// [Options].MaxConns.
func InnerConns(conns int) int { return min(conns, max(leastInner, conns/16)) }

// Server serves the HTTP API of one node.
type Server struct {
	opts      Options
	service   Service
	clients   forwarded.Clients
	log       *slog.Logger
	http      *fasthttp.Server
	wide      *fasthttp.Server // serves headers that don't fit in http's buffers
	routes    map[string]route // of all endpoints
	access    access
	states    *statePool
	budget    *memory.Budget
	nodes     *account.Share // for reading messages of other nodes
	codes     [600]atomic.Int64
	explainer explain.Explainer
	process   string // no other process has this name
	sessions  sessions
	ending    context.Context // done when the server closes
	end       context.CancelFunc

	registry *prometheus.Registry
	scraping sync.Mutex // held while a metrics page is made

	endpoints []*endpoint
	listener  *listener.Listener[*conn]
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, service: o.Service, log: o.Logger,
		access:  access{ask.NewAccess(o.Tokens, o.AdminToken)},
		clients: forwarded.Clients{Trusted: o.TrustedProxies}, process: rand.Text()}
	if o.Warnings != nil {
		s.clients.Warnings = o.Warnings
	}
	s.ending, s.end = context.WithCancel(context.Background())
	s.sessions.init(o.MaxMemory / 5)
	s.states = newStatePool(o.MaxMemory / 8)
	s.budget = memory.NewBudget(o.MaxConns, o.MaxConnsPerAddress, o.MaxMemory/2)
	nodes := max(o.MaxMemory/8, 2*peerhttp.MaxBody)
	s.nodes = (&account.Account{Most: nodes, Each: nodes}).NewShare()
	s.registry = s.newRegistry()
	s.routes = s.routeTable()
	s.endpoints = s.makeEndpoints()
	s.listener = s.newListener()
	s.http, s.wide = s.newHTTP(shortHeader), s.newHTTP(maxHeader)
	return s, nil
}

// silent discards fasthttp's messages for stderr. The relevant ones are also returned as errors.
type silent struct{}

// Printf does nothing.
func (silent) Printf(string, ...any) {}

// Open listens and starts serving. ctx only bounds the listening itself.
func (s *Server) Open(ctx context.Context) error { return s.listener.Open(ctx) }

// OpenOn is Open with a listener made by the caller in place of the one at Options.Listen, such as
// one inherited from a supervisor or one that is not TCP, unless it is nil. Close closes it.
func (s *Server) OpenOn(ctx context.Context, ln net.Listener) error {
	return s.listener.OpenOn(ctx, ln)
}

// Close stops accepting, closes idle connections, and lets requests that have begun finish;
// requests that are still arriving have one second, and clients half of the time until ctx ends to
// read their answers. It returns when no goroutine of the server runs any more. If ctx ends first,
// connections are cut and ctx's error is part of the result, but Close still waits for handlers, at
// most RequestTimeout. Close may be called again and returns the same error.
func (s *Server) Close(ctx context.Context) error {
	s.end()
	return s.listener.Close(ctx)
}
