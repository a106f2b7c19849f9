package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/forwarded"
	"twotier.dev/twotier/httpapi/internal/memory"
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
	// Limits have the defaults in [Defaults]. A connection beyond MaxConns is answered 429 and
	// closed. Admin and PeerListen have separate bounds: see [InnerConns].
	listener.Limits
	// Collectors add to the metrics in /metrics. Their names must differ from the server's.
	Collectors []prometheus.Collector
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
	return o, o.Fill(Defaults())
}

// Defaults returns the defaults of [Options].Limits. A parked connection is a goroutine.
func Defaults() listener.Defaults {
	return listener.Defaults{Package: "httpapi", Idle: 75 * time.Second, Memory: 160,
		LeastMemory: 1, Conn: 5 << 10, TLS: 32 << 10, Sixteenths: 7}
}

// leastInner is the minimum number of connections for Admin and PeerListen each, unless Listen has
// fewer.
const leastInner = 64

// InnerConns returns the number of connections for Admin, and again for PeerListen, with this
// [Options].MaxConns.
func InnerConns(conns int) int { return min(conns, max(leastInner, conns/16)) }

// Server serves the HTTP API of one node.
type Server struct {
	*listener.Listener[*conn]

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
	nodes     *listener.Share // for reading messages of other nodes
	codes     [600]atomic.Int64
	explainer explain.Explainer
	process   string // no other process has this name
	sessions  sessions
	ending    context.Context // done when the server closes
	end       context.CancelFunc

	registry *prometheus.Registry
	scraping sync.Mutex // held while a metrics page is made

	endpoints []*endpoint
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
	s.budget = memory.NewBudget(o.Limits)
	nodes := max(o.MaxMemory/8, 2*peerhttp.MaxBody)
	s.nodes = (&listener.Account{Most: nodes, Each: nodes}).NewShare()
	s.registry = s.newRegistry()
	s.routes = s.routeTable()
	s.endpoints = s.makeEndpoints()
	s.Listener = s.newListener()
	s.http, s.wide = s.newHTTP(shortHeader), s.newHTTP(maxHeader)
	return s, nil
}

// silent discards fasthttp's messages for stderr. The relevant ones are also returned as errors.
type silent struct{}

// Printf does nothing.
func (silent) Printf(string, ...any) {}

// Close stops accepting, closes idle connections, and lets requests that have begun finish;
// requests that are still arriving have one second, and clients half of the time until ctx ends to
// read their answers. It returns when no goroutine of the server runs any more. If ctx ends first,
// connections are cut and ctx's error is part of the result, but Close still waits for handlers, at
// most RequestTimeout. Close may be called again and returns the same error.
func (s *Server) Close(ctx context.Context) error {
	s.end()
	return s.Listener.Close(ctx)
}
