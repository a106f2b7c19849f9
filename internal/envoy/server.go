package envoy

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

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
	// Limits have the defaults in [Defaults]. One address may use half of the memory.
	listener.Limits
	// MaxConnAge is how long a connection lasts, give or take a tenth, before its client is asked
	// to open another one. MaxConnAgeGrace is how long the requests on it may then last before it
	// is closed. 0 means for ever.
	MaxConnAge, MaxConnAgeGrace time.Duration
	// Trusted are the networks of proxies. Each of their addresses may use all connections and all
	// of the memory, because an Envoy asks for all of its clients. Default: none.
	Trusted []netip.Prefix
	// Tracer records a span of each request in a recorded trace. Default: none.
	Tracer trace.Tracer
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

// Defaults returns the defaults of [Options].Limits.
func Defaults() listener.Defaults {
	return listener.Defaults{Package: "envoy", Memory: 32, LeastMemory: 1, Conn: connBytes,
		Sixteenths: 8}
}

// withDefaults returns o with its defaults filled in, or an error if o can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Limiter == nil || o.Listen == "" {
		return o, errors.New("envoy: Options needs Limiter and Listen")
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	return o, o.Fill(Defaults())
}

// Server serves a [Limiter] over gRPC. Its methods may be called from several goroutines.
type Server struct {
	*listener.Listener[*conn]
	metrics.Unchecked

	opts     Options
	access   ask.Access
	conns    *listener.Conns
	health   *health.Server
	grpc     *grpc.Server
	isStream map[string]bool // by the full name of a method
	counters counters
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, access: ask.NewAccess(o.Tokens, o.AdminToken),
		health: health.NewServer()}
	// Half of the memory is for connections. One address may use half of each account.
	half := func(most int64) *listener.Account {
		return &listener.Account{Most: most, Each: most / 2}
	}
	staying := max(2*stayBytes, o.MaxMemory/16)
	part := (o.MaxMemory/2 - staying) / 7
	s.conns = listener.NewConns(o.MaxConns, o.MaxConnsPerAddress, []*listener.Account{
		calls: half(2 * part), holding: half(part), works: half(4 * part), streams: half(staying),
	}...)
	s.conns.Trust(o.Trusted)
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
		Sockets: []*listener.Socket{{Flag: "grpc", Address: o.Listen, Conns: s.conns}},
		Make:    s.newConn, Run: s.grpc.Serve, Stop: s.stop, Logger: o.Logger,
		Kind: "gRPC connections"})
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

// patience is how long a client may take to send a request, and how long to read its answer.
func (s *Server) patience() time.Duration { return 2 * s.opts.RequestTimeout }

// streamingMethods returns the full names of the streaming methods.
func streamingMethods(services map[string]grpc.ServiceInfo) map[string]bool {
	names := map[string]bool{}
	for service, info := range services {
		for _, m := range info.Methods {
			if m.IsClientStream || m.IsServerStream {
				names["/"+service+"/"+m.Name] = true
			}
		}
	}
	return names
}

// admit admits a request whose headers have arrived, if there is memory for it: in total, and for
// its address. A request has RequestTimeout to arrive and as much again to be executed; without
// that bound, one that never arrives completely would keep its memory. Long-lived streams draw on a
// separate account. admit must not wait: the library holds a lock of the connection.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	from, _ := peer.FromContext(ctx) // it always has one
	st := from.Addr.(clientAddr).conn.arriving
	if st == nil {
		s.counters.failed.Add(1)
		return nil, memoryError()
	}
	st.headers = metadataBytes(info.Header)
	isStream := s.isStream[info.FullMethodName]
	if !st.grow(st.headers, 0) ||
		isStream && !st.reserve(streams, stayBytes, nil, time.Time{}) {
		s.counters.failed.Add(1)
		return nil, memoryError()
	}
	ctx = context.WithValue(ctx, streamKey{}, st)
	var cancel context.CancelFunc
	if isStream {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, s.patience())
	}
	st.setCancel(cancel)
	return ctx, nil
}

// memoryError returns the error of a request refused because of this node's limits.
func memoryError() error {
	return status.Error(codes.ResourceExhausted, "too much is being read and answered at this "+
		"moment; nothing was counted")
}

// metadataBytes returns the approximate memory of metadata.
func metadataBytes(md metadata.MD) (n int64) {
	for key, values := range md {
		n += int64(len(key))
		for _, v := range values {
			n += fieldBytes + int64(len(v))
		}
	}
	return n
}

// workBytes returns an upper bound on the memory for executing and answering a request: an answer
// has a state and headers for each descriptor, with its keys or the name of its limit.
func workBytes(in any) int64 {
	r, ok := in.(*ratelimitv3.RateLimitRequest)
	if !ok {
		return 0
	}
	return 3*bytesOf(r) + descriptorBytes*int64(len(r.GetDescriptors()))
}

// execute runs the handler of a request once there is memory for its work, and keeps the memory of
// the answer until the answer is written.
func (s *Server) execute(ctx context.Context, in any, handler grpc.UnaryHandler) (any, error) {
	st := streamOf(ctx)
	if !st.markRunning(1) {
		return nil, status.FromContextError(context.Canceled).Err()
	}
	defer st.markExecuted(1)
	work := workBytes(in) - ownBytes
	by := time.Now().Add(st.conn.roomWait())
	if work > 0 && !st.reserve(works, work, ctx.Done(), by) {
		return nil, memoryError()
	}
	out, err := handler(ctx, in)
	st.shrinkTo(answeredBytes + st.headers + bytesOf(out)/8*9)
	return out, err
}

// counters are the values of the metrics.
type counters struct {
	passed, over, failed atomic.Int64 // requests by outcome
	unread               atomic.Int64 // connections whose clients read no answer
}

// Collect implements [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	requests := to.Totals("twotier_grpc_requests_total", "gRPC requests, by outcome.", "outcome")
	requests(s.counters.passed.Load(), "ok")
	requests(s.counters.over.Load(), "over_limit")
	requests(s.counters.failed.Load(), "error")
	to.Gauge("twotier_grpc_connections", "Open gRPC connections.", int64(s.conns.InUse()))
	to.Total("twotier_grpc_rejected_total",
		"gRPC connections turned away because there were too many.", s.Rejected())
	to.Total("twotier_grpc_unread_total",
		"gRPC connections closed because an answer was not read in time.", s.counters.unread.Load())
	to.Gauge("twotier_grpc_memory_bytes",
		"Memory of gRPC requests, until their answers are written.",
		s.conns.Held(accounts))
}

// withTrace returns ctx as part of the trace that a request names in its metadata, in W3C Trace
// Context format, with a new span if that is recorded. More than one traceparent counts as none.
func (s *Server) withTrace(ctx context.Context, method string) context.Context {
	parent := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(parent) != 1 {
		return ctx
	}
	state := metadata.ValueFromIncomingContext(ctx, "tracestate")
	of := trace.Parse(parent[0], strings.Join(state, ","))
	name := strings.TrimPrefix(method, "/")
	return trace.With(ctx, trace.Begin(s.opts.Tracer, of, name, time.Now()))
}

// endSpan ends the span of a request of a method. A client's mistake is no failure.
func endSpan(span trace.Span, method string, code codes.Code) {
	service, method, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	span.Set(slog.String("rpc.system", "grpc"), slog.String("rpc.service", service),
		slog.String("rpc.method", method), slog.Int("rpc.grpc.status_code", int(code)))
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal,
		codes.Unavailable, codes.DataLoss:
		span.Fail(code.String())
	}
	span.End()
}
