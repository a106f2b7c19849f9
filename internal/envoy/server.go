package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
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
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/metrics"
	"twotier.dev/twotier/internal/trace"
)

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
	if o.MaxMemory == 0 {
		o.MaxMemory = 32 << 20
	}
	if o.MaxMemory < 1<<20 {
		return o, fmt.Errorf("envoy: Options.MaxMemory is %d, want at least 1 MiB", o.MaxMemory)
	}
	err := listener.Bounds{RequestTimeout: &o.RequestTimeout, MaxConns: &o.MaxConns,
		MaxConnsPerAddress: &o.MaxConnsPerAddress}.Fill("envoy", 0, ConnsFor(o.MaxMemory))
	return o, err
}

// Server serves a [Limiter] over gRPC. Its methods may be called from several goroutines.
type Server struct {
	*listener.Listener[*conn]
	metrics.Unchecked

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
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, access: ask.NewAccess(o.Tokens, o.AdminToken),
		health: health.NewServer()}
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
	s.Listener = listener.New(listener.Options[*conn]{
		Sockets: []*listener.Socket{{Address: o.Listen, Conns: s.conns}}, Make: s.newConn,
		Run: s.grpc.Serve, Stop: s.stop, Logger: o.Logger, Kind: "gRPC connections"})
	return s, nil
}

// stop sends clients away, stops accepting, and finishes the requests that are being executed. A
// second later it cuts the connections that execute none: a client that reads no answer, or does
// not finish its request, delays nothing. It returns once no connection is left. If ctx ends first,
// it cuts connections, and only waits for requests that are being executed, at most RequestTimeout.
func (s *Server) stop(ctx context.Context) error {
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	cut := time.NewTicker(stopGrace)
	defer cut.Stop()
	for {
		select {
		case now := <-cut.C:
			for _, c := range s.Live() {
				c.closeIfIdle(now, stopGrace)
			}
			cut.Reset(stopGrace / 10)
		case <-ctx.Done():
			s.grpc.Stop()
			<-done
			return ctx.Err()
		case <-done:
			return nil
		}
	}
}
