package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/trace"
)

// ErrOpened is returned by Open if the server has been opened or closed before.
var ErrOpened = errors.New("server was opened or closed before")

// Options configure a [Server]. The zero value of each field is the documented default.
type Options struct {
	// Limiter decides the requests. Required.
	Limiter *Limiter
	// Listen is the TCP address; port 0 picks a free one. Required.
	Listen string
	// Ready returns an error if the node can't answer correctly; the health service asks it.
	// Default: it always can.
	Ready func() error
	// Tokens resolves the bearer tokens in the metadata "authorization". Default: anyone who can
	// connect may do everything. AdminToken also grants everything.
	Tokens     ask.Tokens
	AdminToken string
	// TLS is used for all connections. Default: none, connections are in plain text.
	TLS *tls.Config
	// RequestTimeout bounds the execution of one request. Default 2s.
	RequestTimeout time.Duration
	// MaxMemory bounds the bytes used by connections and requests, approximately. Default 32 MiB.
	MaxMemory int64
	// MaxConns bounds the open connections. Default: [ConnsFor] MaxMemory.
	MaxConns int
	// MaxConnsPerAddress bounds the connections of one IPv4 address or IPv6 network (/64). Default:
	// half of MaxConns.
	MaxConnsPerAddress int
	// MaxConnAge is how long a connection lasts, give or take a tenth, before its client is asked
	// to open another one. MaxConnAgeGrace is how long the requests on it may then last before it
	// is closed. 0 means for ever.
	MaxConnAge, MaxConnAgeGrace time.Duration
	// Trusted are the networks of proxies. Each of their addresses may use all connections and all
	// of the memory, because an Envoy asks for all of its clients. Default: none.
	Trusted []netip.Prefix
	// Tracer records a span of each request in a recorded trace. Default: none.
	Tracer trace.Tracer
	// Logger receives state changes. Default: none.
	Logger *slog.Logger
}

const (
	// maxMessage bounds a request: 64 descriptors, each with all the headers that an Envoy accepts
	// by default, 60 KiB. The memory bounds apply, too, as it arrives.
	maxMessage = 4 << 20
	// window is how much of a request may arrive before the server reads it. All requests of a
	// connection may arrive at once, so that the message of a request comes right after its
	// headers: behind those of requests that wait for memory, no message could arrive and free
	// some.
	window = 64 << 10
	// maxMetadata bounds its metadata, as HTTP/2 counts it.
	maxMetadata = 16 << 10
	// connBytes is the approximate memory of a connection without requests: its goroutines, two
	// buffers, tables of headers, and TLS.
	connBytes = 96 << 10
	// maxStreams bounds the concurrent requests of one connection. An Envoy has a connection for
	// each of its threads.
	maxStreams = 256
	// stopGrace is how long a stopping server leaves connections that execute no request alone.
	stopGrace = time.Second
)

// ConnsFor returns the default [Options].MaxConns for a [Options].MaxMemory of this many bytes.
func ConnsFor(bytes int64) int { return int(max(1, bytes/2/connBytes)) }

// withDefaults returns o with its defaults filled in, or an error if o can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Limiter == nil || o.Listen == "" {
		return o, errors.New("envoy: Options needs Limiter and Listen")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 2 * time.Second
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = 32 << 20
	}
	if o.MaxConns == 0 {
		o.MaxConns = ConnsFor(o.MaxMemory)
	}
	if o.MaxConnsPerAddress == 0 {
		o.MaxConnsPerAddress = max(1, o.MaxConns/2)
	}
	if o.RequestTimeout < 0 || o.MaxMemory < 1<<20 || o.MaxConns < 1 || o.MaxConnsPerAddress < 1 {
		return o, fmt.Errorf("envoy: a bound of Options is too small: %v, %d bytes, %d and %d "+
			"connections", o.RequestTimeout, o.MaxMemory, o.MaxConns, o.MaxConnsPerAddress)
	}
	return o, nil
}

// Server serves a [Limiter] over gRPC. Its methods may be called from several goroutines.
type Server struct {
	opts   Options
	access ask.Access
	conns  *account.Conns
	health *health.Server
	grpc   *grpc.Server
	// calls accounts for the memory that every request takes, held for frames that are held back
	// meanwhile, works for longer messages, executing and answering, streams for the memory of
	// long-lived streams. A request takes from calls and then from works, which has room for a
	// message of 16 KiB of each request that calls admits, so such requests don't wait for each
	// other in a circle.
	calls, held, works, streams account.Account
	isStream                    map[string]bool // by the full name of a method
	counters                    counters

	closing   atomic.Bool
	serving   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error

	mu       sync.Mutex
	listener net.Listener
	opened   bool
	live     map[*conn]struct{}
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, access: ask.NewAccess(o.Tokens, o.AdminToken),
		health: health.NewServer(), live: map[*conn]struct{}{}}
	accounts := []*account.Account{&s.calls, &s.held, &s.works, &s.streams}
	s.conns = account.NewConns(o.MaxConns, o.MaxConnsPerAddress, accounts...)
	s.conns.Trust(o.Trusted)
	// Half of the memory is for connections. One address may use half of each account.
	s.streams.Most = max(2*stayBytes, o.MaxMemory/16)
	part := (o.MaxMemory/2 - s.streams.Most) / 7
	s.calls.Most, s.held.Most, s.works.Most = 2*part, part, 4*part
	for _, a := range accounts {
		a.Each = a.Most / 2
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxMetadata), grpc.ConnectionTimeout(10 * time.Second),
		grpc.ReadBufferSize(0), grpc.WriteBufferSize(16 << 10),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(maxStreams * window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute,
			Timeout: 20 * time.Second, MaxConnectionIdle: time.Hour,
			MaxConnectionAge: o.MaxConnAge, MaxConnectionAgeGrace: o.MaxConnAgeGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second,
			PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.InTapHandle(s.admit), grpc.UnaryInterceptor(s.interceptUnary),
		grpc.StreamInterceptor(s.interceptStream), grpc.WaitForHandlers(true),
	}
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = credentials.NewTLS(o.TLS)
	}
	options = append(options, grpc.Creds(framedCredentials{secure}))
	s.grpc = grpc.NewServer(options...)
	ratelimitv3.RegisterRateLimitServiceServer(s.grpc, service{s: s})
	healthv1.RegisterHealthServer(s.grpc, healthService{s.health, o.Ready})
	s.health.SetServingStatus(ratelimitv3.RateLimitService_ServiceDesc.ServiceName,
		healthv1.HealthCheckResponse_SERVING)
	reflection.Register(s.grpc)
	s.isStream = streamingMethods(s.grpc.GetServiceInfo())
	return s, nil
}

// Open listens and starts serving. ctx only bounds the listening itself.
func (s *Server) Open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened || s.closing.Load() {
		return ErrOpened
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.opts.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.opts.Listen, err)
	}
	s.listener, s.opened = ln, true
	s.serving.Go(func() { s.runServe(ln) })
	return nil
}

// runServe serves connections until the server is stopped.
func (s *Server) runServe(ln net.Listener) {
	err := s.grpc.Serve(&boundedListener{ln, s})
	if err != nil && !s.closing.Load() {
		s.opts.Logger.Error("can't accept gRPC connections any more", "err", err)
	}
}

// Addr returns the address that the server listens on, or nil before Open.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Close sends clients away, stops accepting, and finishes the requests that are being executed. A
// second later it cuts the connections that execute none: a client that reads no answer, or does
// not finish its request, delays nothing. Close returns once every goroutine of the server has
// ended. If ctx ends first, connections are cut and ctx's error is part of the result, but Close
// still waits for requests that are being executed, at most RequestTimeout. Close may be called
// again and returns the same error.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.shutDown(ctx) })
	return s.closeErr
}

func (s *Server) shutDown(ctx context.Context) (err error) {
	s.closing.Store(true)
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	for cut := time.NewTicker(stopGrace); err == nil; {
		select {
		case now := <-cut.C:
			for _, c := range s.liveConns() {
				c.closeIfIdle(now, stopGrace)
			}
			cut.Reset(stopGrace / 10)
			continue
		case <-ctx.Done():
			err = ctx.Err()
			s.grpc.Stop()
			<-done
		case <-done:
		}
		cut.Stop()
		break
	}
	s.serving.Wait()
	return err
}

// liveConns returns the open connections.
func (s *Server) liveConns() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.live))
}
