package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/forwarded"
	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
)

// Service executes the requests of a [Server].
// A method must not keep an operation, its keys or its context after it returns, because they are
// views into the request.
//
// Errors come from package syncer: a [twotier.InvalidError] is answered with status 422,
// [twotier.ErrOverload] with 429, [twotier.ErrUnavailable] and [twotier.ErrClosed] with 503, and
// [twotier.ErrUnknownOutcome] with 503 and "outcome":"unknown". An add or acquire that returns its
// context's error has an unknown outcome too. Any other error is a 500.
type Service interface {
	ask.Service
	ask.Keys
	ask.Resetter
	Members
	Health
}

// Members reports on the cluster and changes its mode.
type Members interface {
	// Cluster returns the cluster as the node sees it.
	Cluster() cluster.View
	// Survey asks all members for their status and adds it to the view.
	Survey(ctx context.Context, view *cluster.View)
	// Events returns the events that the members have seen, the newest first.
	Events(ctx context.Context) cluster.Events
	// Owners returns, for every partition, the index of its owner in Cluster's members, and the
	// seed of the hash that maps keys to partitions.
	Owners() (owners []int, seed *uint64)
	// SetMode changes how the whole cluster counts.
	SetMode(ctx context.Context, mode cluster.Mode) error
}

// Health reports on the node.
type Health interface {
	// Ready returns an error if the node can't answer honestly, and otherwise the reasons why its
	// answers are degraded, if they are.
	Ready() (degraded []string, err error)
	// Stats returns the node's counters.
	Stats() cluster.Stats
}

// ErrOpened is returned by Open if the server has been opened or closed before.
var ErrOpened = listener.ErrOpened

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

// apiSet is a set of kinds of endpoints that serve a route.
type apiSet uint8

const (
	clientAPI apiSet = 1 << iota // Options.Listen
	adminAPI                     // Options.Admin if set, otherwise Options.Listen
	peerAPI                      // Options.PeerListen if set, otherwise Options.Listen
)

// endpoint is an address that the server listens on, with the routes served there.
type endpoint struct {
	listener.Socket

	// budget is for the clients of this endpoint, so that strangers on one endpoint can't keep
	// anybody out of another.
	budget *memory.Budget
	routes map[string]route
	hosts  hostname.Check
}

// makeEndpoints makes the endpoints. The first one is the public one.
func (s *Server) makeEndpoints() []*endpoint {
	everyone := &endpoint{Socket: listener.Socket{Flag: "listen", Address: s.opts.Listen}}
	endpoints, open := []*endpoint{everyone}, clientAPI|adminAPI|peerAPI
	at := map[*endpoint]apiSet{}
	if s.opts.Admin != "" {
		d := &endpoint{Socket: listener.Socket{Flag: "admin", Address: s.opts.Admin}}
		endpoints, at[d], open = append(endpoints, d), adminAPI, open&^adminAPI
	}
	if s.opts.PeerListen != "" {
		d := &endpoint{Socket: listener.Socket{Flag: "peer", Address: s.opts.PeerListen}}
		endpoints, at[d], open = append(endpoints, d), peerAPI, open&^peerAPI
	}
	at[everyone] = open
	for _, d := range endpoints {
		d.budget = s.budget
		if d != everyone {
			conns := InnerConns(s.opts.MaxConns)
			d.budget = memory.NewBudget(listener.Limits{MaxConns: conns, MaxConnsPerAddress: conns,
				MaxMemory: s.opts.MaxMemory / 8})
		}
		d.Conns = d.budget.Conns
		d.hosts = hostname.NewCheck(s.opts.Hosts, s.opts.Tokens != nil,
			hostname.IsLoopback(d.Address))
		d.routes = map[string]route{}
		for path, r := range s.routes {
			if r.put != nil && r.put.at&at[d] == 0 {
				r.put = nil
			}
			if r.at&at[d] != 0 {
				d.routes[path] = r
			}
		}
	}
	return endpoints
}

// AdminAddr returns the address of Options.Admin, or nil before Open or if there is none.
func (s *Server) AdminAddr() net.Addr {
	if s.opts.Admin == "" {
		return nil
	}
	return s.AddrOf(&s.endpoints[1].Socket)
}

// PeerAddr returns the address where other nodes reach this one, or nil before Open.
func (s *Server) PeerAddr() net.Addr {
	if s.opts.PeerListen == "" {
		return s.Addr()
	}
	return s.AddrOf(&s.endpoints[len(s.endpoints)-1].Socket)
}

// addProfiles adds the profiles of package net/http/pprof, which reveal memory contents and the
// flags of the process. They are only served on a separate endpoint, and only to tokens for all
// namespaces. They end when the server closes, whatever duration the request names.
func (s *Server) addProfiles(routes map[string]route) {
	profiles := map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile,
		"trace": pprof.Trace}
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		profiles[name] = pprof.Handler(name).ServeHTTP
	}
	for name, profile := range profiles {
		show := fasthttpadaptor.NewFastHTTPHandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			profile(w, r.WithContext(s.ending))
		})
		routes["/debug/pprof/"+name] = route{need: twotier.RoleAdmin, guarded: true, all: true,
			at: adminAPI,
			handler: func(ctx *fasthttp.RequestCtx) *wire.Problem {
				show(ctx)
				return nil
			}}
	}
}
