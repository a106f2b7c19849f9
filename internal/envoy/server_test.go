package envoy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/spantest"
	"twotier.dev/twotier/internal/testing/testca"
	"twotier.dev/twotier/internal/token"
	"twotier.dev/twotier/internal/verdicts"
)

// serve opens a server that the end of the test closes.
func serve(t *testing.T, o envoy.Options) *envoy.Server {
	t.Helper()
	if o.Limiter == nil {
		o.Limiter = start(t).Limiter
	}
	o.Listen = "127.0.0.1:0"
	s, err := envoy.New(o)
	must.Succeed(t, err)
	must.Succeed(t, s.Open(t.Context()))
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *envoy.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// dial returns a connection to a server.
func dial(t *testing.T, s *envoy.Server, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(creds))
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends one descriptor over a connection.
func ask(ctx context.Context, conn *grpc.ClientConn, text string) (code string, err error) {
	answer, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx,
		asking("edge", descriptor(text)))
	return answer.GetOverallCode().String(), err
}

func TestServer(t *testing.T) {
	conn := dial(t, serve(t, envoy.Options{}), insecure.NewCredentials())
	for _, want := range []string{"OK", "OK", "OK", "OVER_LIMIT"} {
		if code, err := ask(t.Context(), conn, "ip=1"); code != want || err != nil {
			t.Errorf("%s, %v, want %s", code, err, want)
		}
	}
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	must.Succeed(t, err)
	must.Succeed(t, stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}))
	list, err := stream.Recv()
	const service = "envoy.service.ratelimit.v3.RateLimitService"
	if err != nil || !strings.Contains(list.String(), service) {
		t.Errorf("reflection: %v, %v", list, err)
	}
	_, err = ask(t.Context(), conn, "ip="+strings.Repeat("x", 4<<20))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request of more than 4 MiB: %v", err)
	}
}

func TestHealth(t *testing.T) {
	var trouble error
	s := serve(t, envoy.Options{Ready: func() error { return trouble }})
	client := healthv1.NewHealthClient(dial(t, s, insecure.NewCredentials()))
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService"} {
		for _, trouble = range []error{nil, errors.New("no Redis")} {
			r, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			serving := r.GetStatus() == healthv1.HealthCheckResponse_SERVING
			if err != nil || serving != (trouble == nil) {
				t.Errorf("%q with %v: %v, %v", service, trouble, r, err)
			}
		}
	}
}

func TestTokens(t *testing.T) {
	tokens := new(token.Store)
	lines, texts := "", map[string]string{}
	for name, grant := range map[string]string{"counts": "count *", "reads": "read *",
		"elsewhere": "count other"} {
		text, hash := token.New()
		texts[name], lines = text, lines+name+" "+hash+" "+grant+"\n"
	}
	must.Succeed(t, tokens.Load([]byte(lines)))
	texts["admin"] = "an admin's token"
	s := serve(t, envoy.Options{Tokens: tokens, AdminToken: texts["admin"]})
	conn := dial(t, s, insecure.NewCredentials())
	for name, want := range map[string]codes.Code{"counts": codes.OK, "admin": codes.OK,
		"reads": codes.PermissionDenied, "elsewhere": codes.PermissionDenied,
		"nobody": codes.Unauthenticated} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+texts[name])
		if _, err := ask(ctx, conn, "known=x"); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := ask(t.Context(), conn, "known=x"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without a token: %v", err)
	}
	_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Errorf("health without a token: %v", err)
	}
}

// TestForbiddenNamesNoField refuses a request for its grant: requests of Envoy have no ns and no
// op.
func TestForbiddenNamesNoField(t *testing.T) {
	b := start(t)
	for _, may := range []struct{ roles, namespaces string }{{"count", "other"}, {"read", ""}} {
		g, err := twotier.NewGrant("reader", may.roles, may.namespaces)
		must.Succeed(t, err)
		_, _, err = b.JSON(t.Context(), g, []byte(
			`{"domain":"edge","descriptors":[{"entries":[{"key":"ip","value":"1"}]}]}`))
		f, ok := errors.AsType[*request.Failure](err)
		if !ok || f.Kind != request.Forbidden || f.Field != "" {
			t.Errorf("%+v: %+v", may, f)
		}
	}
}

// secured returns the configuration of a server with TLS and the credentials of its clients.
func secured(t *testing.T) (*tls.Config, credentials.TransportCredentials) {
	t.Helper()
	ca, err := testca.New()
	must.Succeed(t, err)
	cert, key, err := ca.Issue(2, time.Now().Add(time.Hour))
	must.Succeed(t, err)
	var store certs.Store
	must.Succeed(t, store.Load(cert, key, nil))
	return store.Server(), credentials.NewTLS(&tls.Config{RootCAs: ca.Pool()})
}

func TestTooManyConnections(t *testing.T) {
	s := serve(t, envoy.Options{Limits: listener.Limits{MaxConns: 2, MaxConnsPerAddress: 1}})
	if _, err := ask(t.Context(), dial(t, s, insecure.NewCredentials()), "ip=1"); err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", s.Addr().String())
	must.Succeed(t, err)
	defer nc.Close()
	must.Succeed(t, nc.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, err := nc.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a second connection was served: %d, %v", n, err)
	}
}

// TestCloseFinishesRequests closes a server in the middle of a request, which is still answered.
func TestCloseFinishesRequests(t *testing.T) {
	b := start(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, envoy.Options{Limiter: envoy.NewLimiter(
		&holding{b, "ip=1", begun, goOn}, b.book, nil)})
	conn := dial(t, s, insecure.NewCredentials())
	answered := make(chan error, 1)
	go func() {
		_, err := ask(context.Background(), conn, "ip=1")
		answered <- err
	}()
	<-begun
	closed := make(chan struct{})
	go func() {
		stop(t, s)
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("closed in the middle of a request")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-closed
	if err := s.Open(t.Context()); !errors.Is(err, listener.ErrOpened) {
		t.Errorf("opened again: %v", err)
	}
}

// TestSpans sends one request that is allowed, one that is malformed and one that can't be
// answered, each in a recorded trace, one in a trace that is not recorded, and one that names two.
// Decisions and operations are of the same trace.
func TestSpans(t *testing.T) {
	b := start(t)
	var r spantest.Recorder
	var decided []string
	b.counted = verdicts.New(decisions.Func(func(d *decisions.Decision) {
		decided = append(decided, d.Trace.TraceContext().TraceID())
	}))
	conn := dial(t, serve(t, envoy.Options{Limiter: envoy.NewLimiter(b, b.book, b.counted),
		Tracer: &r}), insecure.NewCredentials())
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	part := func(flag string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent+flag)
	}
	if code, err := ask(part("1"), conn, "ip=1"); code != "OK" || err != nil {
		t.Fatal(code, err)
	}
	if code, err := ask(part("0"), conn, "ip=1"); code != "OK" || err != nil {
		t.Fatal(code, err)
	}
	two := metadata.AppendToOutgoingContext(part("1"), "traceparent", parent+"1")
	if code, err := ask(two, conn, "ip=1"); code != "OK" || err != nil {
		t.Fatal(code, err)
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	if want := []string{id, id, ""}; !slices.Equal(decided, want) || !slices.Equal(b.traces, want) {
		t.Errorf("decided %q, executed %q, want %q", decided, b.traces, want)
	}
	if _, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(part("1"),
		&ratelimitv3.RateLimitRequest{}); err == nil {
		t.Error("a request without a domain is no error")
	}
	b.counter.Close(t.Context())
	if _, err := ask(part("1"), conn, "ip=1"); err == nil {
		t.Error("a request after the end is no error")
	}
	spans := r.Spans()
	if len(spans) != 3 {
		t.Fatalf("%+v", spans)
	}
	for i, want := range []struct {
		verdict, code string
		failed        bool
	}{{"allowed", "0", false}, {"", "3", false}, {"", "14", true}} {
		s := spans[i]
		if s.Name != "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" ||
			s.Attributes["rpc.grpc.status_code"] != want.code || s.Ended != 1 ||
			s.Attributes["twotier.verdict"] != want.verdict || s.Failed != want.failed ||
			s.Attributes["rpc.method"] != "ShouldRateLimit" || s.Parent[0] != 0xb7 {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
}
