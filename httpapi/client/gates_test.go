package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/httpapi/client/grpcgate"
	"twotier.dev/twotier/internal/testing/must"
)

// sharingOptions are options of middleware in the table that all languages share.
type sharingOptions struct {
	Name, NS string
	Limits   map[string]int64
	Rules    []string
}

// open makes a gate with these options.
func (o *sharingOptions) open(t *testing.T, c *client.Client) {
	t.Helper()
	g := client.GateOptions{Client: c, Outage: client.FailOpen, Name: o.Name, Namespace: o.NS,
		Rules: o.Rules}
	for text, most := range o.Limits {
		window, err := time.ParseDuration(text)
		must.Succeed(t, err)
		g.Limits = append(g.Limits, client.Limit{Window: window, Max: most})
	}
	_, err := client.NewGate(g)
	must.Succeed(t, err)
}

// TestGatesThatShareCountsWarn makes pairs of gates, of one client and of two.
func TestGatesThatShareCountsWarn(t *testing.T) {
	text, err := os.ReadFile("../../clients/testdata/sharing.json")
	must.Succeed(t, err)
	var rows []struct {
		First, Second sharingOptions
		Warns         bool
	}
	must.Succeed(t, json.Unmarshal(text, &rows))
	for i, row := range rows {
		for clients := range 2 {
			var log bytes.Buffer
			open := func() *client.Client {
				c := newClient(t, client.Options{
					Addresses: []string{fmt.Sprintf("127.0.0.1:%d", 1+2*i+clients)},
					Logger:    slog.New(slog.NewTextHandler(&log, nil))})
				return c
			}
			first := open()
			second := first
			if clients == 1 {
				second = open()
			}
			row.First.open(t, first)
			row.Second.open(t, second)
			if got := strings.Contains(log.String(), "share their counts"); got != row.Warns {
				t.Errorf("row %d: %+v and %+v: warned %v", i, row.First, row.Second, got)
			}
		}
	}
}

// TestNameIsPartOfEveryKey counts keys of a gate with a name.
func TestNameIsPartOfEveryKey(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	plain := gate(t, c, asGiven)
	named := gate(t, c, func(o *client.GateOptions) { o.Name = "login" })
	for _, key := range []string{"ann", "", strings.Repeat("k", 256), "sha256:"} {
		for name, g := range map[string]*client.Gate{"none": plain, "login": named} {
			var next served
			for range 5 {
				visit(t.Context(), g, &next, key)
			}
			if n := next.Load(); n != 3 {
				t.Errorf("%.20q, name %s: %d of 5 passed, want 3", key, name, n)
			}
		}
	}
	a, err := c.Count(t.Context(), client.CountRequest{Key: "login:ann",
		Windows: []time.Duration{time.Minute}})
	if err != nil || a.Counts[0].Max != 3 {
		t.Errorf("login:ann: %+v, %v", a, err)
	}
}

// guarded starts a gRPC server, whose calls a gate limits by the user in their metadata, and
// returns a client of its health service.
func guarded(t *testing.T, g *client.Gate) healthv1.HealthClient {
	t.Helper()
	checks := func(ctx context.Context, method string, request any) []client.Check {
		md, _ := metadata.FromIncomingContext(ctx)
		users := md.Get("user")
		if len(users) == 0 {
			return nil
		}
		_, hasMessage := request.(*healthv1.HealthCheckRequest)
		if hasMessage == strings.HasSuffix(method, "/Watch") {
			t.Errorf("%s with %v", method, request)
		}
		return []client.Check{{Key: method + " " + users[0]}}
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(grpcgate.Unary(g, checks)),
		grpc.ChainStreamInterceptor(grpcgate.Stream(g, checks)))
	healthv1.RegisterHealthServer(server, grpchealth.NewServer())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(ln.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, conn.Close()) })
	return healthv1.NewHealthClient(conn)
}

// check makes a unary call as a user, and watch opens a stream. They return its headers.
func check(ctx context.Context, c healthv1.HealthClient, user string) (metadata.MD, error) {
	var headers metadata.MD
	_, err := c.Check(metadata.AppendToOutgoingContext(ctx, "user", user),
		&healthv1.HealthCheckRequest{}, grpc.Header(&headers))
	return headers, err
}

func watch(ctx context.Context, c healthv1.HealthClient, user string) (metadata.MD, error) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "user", user))
	defer cancel()
	s, err := c.Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return nil, err
	}
	headers, err := s.Header()
	if err != nil {
		return nil, err
	}
	_, err = s.Recv()
	return headers, err
}

// retryDelay returns the delay in the RetryInfo of an error, or 0 if it has none.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// TestGRPCInterceptors makes calls and opens streams; three of each are allowed per minute.
func TestGRPCInterceptors(t *testing.T) {
	c := guarded(t, gate(t, newBed(t, 1).client(), asGiven))
	for kind, call := range map[string]func(context.Context, healthv1.HealthClient, string) (
		metadata.MD, error){"unary": check, "stream": watch} {
		for i, state := range []string{`"limits[0]";r=2`, `"limits[0]";r=1`, `"limits[0]";r=0`,
			`"limits[0]";r=0;t=`, `"limits[0]";r=0;t=`} {
			md, err := call(t.Context(), c, "ann")
			want := codes.OK
			if i >= 3 {
				want = codes.ResourceExhausted
			}
			wait := retryDelay(err)
			if status.Code(err) != want || (wait > 0 && wait <= 62*time.Second) != (i >= 3) {
				t.Errorf("%s call %d: %v, to be tried again after %v", kind, i, err, wait)
			}
			if strings.Join(md.Get("ratelimit-policy"), "") != `"limits[0]";q=3;w=60` ||
				!strings.HasPrefix(strings.Join(md.Get("ratelimit"), ""), state) ||
				(len(md.Get("retry-after")) == 1) != (i >= 3) {
				t.Errorf("%s call %d: metadata %v, want a ratelimit of %s", kind, i, md, state)
			}
		}
		if _, err := call(t.Context(), c, "bob"); err != nil {
			t.Errorf("another user's %s: %v", kind, err)
		}
	}
	for range 5 {
		if _, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("one that is not limited: %v", err)
		}
	}
}

// TestGRPCWithoutADecision: a missing decision has a distinct status, which depends on the gate's
// Outage.
func TestGRPCWithoutADecision(t *testing.T) {
	gone := noNode(t)
	for _, tt := range []struct {
		name   string
		client *client.Client
		outage client.Outage
		want   codes.Code
		wait   time.Duration
	}{
		{"open", gone, client.FailOpen, codes.OK, 0},
		{"closed", gone, client.FailClosed, codes.Unavailable, time.Second},
		{"overloaded", stub(t, `"status":429,"retry_after_ms":2350`), client.FailOpen,
			codes.ResourceExhausted, 2350 * time.Millisecond},
		{"invalid", stub(t, `"status":422`), client.FailOpen, codes.Internal, 0},
	} {
		c := guarded(t, gate(t, tt.client, func(o *client.GateOptions) { o.Outage = tt.outage }))
		for kind, call := range map[string]func(context.Context, healthv1.HealthClient, string) (
			metadata.MD, error){"unary": check, "stream": watch} {
			_, err := call(t.Context(), c, "ann")
			if status.Code(err) != tt.want || retryDelay(err) != tt.wait {
				t.Errorf("%s, %s: %v, to be tried again after %v, want %v, %v", tt.name, kind, err,
					retryDelay(err), tt.want, tt.wait)
			}
		}
	}
	// A limit of none: no wait brings room.
	never := gate(t, newBed(t, 1).client(), func(o *client.GateOptions) {
		o.Limits = []client.Limit{{Window: time.Minute}}
	})
	md, err := check(t.Context(), guarded(t, never), "ann")
	if status.Code(err) != codes.ResourceExhausted || retryDelay(err) != 0 ||
		len(md.Get("retry-after")) > 0 {
		t.Errorf("a limit of none: %v, %v", err, md)
	}
}

// TestTransport sends more requests than the limits leave room for: each waits for its turn.
func TestTransport(t *testing.T) {
	var answered atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		answered.Add(1)
	}))
	defer api.Close()
	c := newBed(t, 1).client()
	transport := func(key string, change func(*client.TransportOptions)) *http.Client {
		o := client.TransportOptions{
			GateOptions: client.GateOptions{Client: c, Outage: client.FailClosed,
				Wait: 5 * time.Second, Limits: []client.Limit{{Window: time.Second, Max: 2}}},
			Checks: func(*http.Request) []client.Check { return []client.Check{{Key: key}} },
		}
		change(&o)
		rt, err := client.NewTransport(o)
		must.Succeed(t, err)
		return &http.Client{Transport: rt}
	}
	patient := transport("patient", func(*client.TransportOptions) {})
	for range 5 {
		resp, err := patient.Get(api.URL)
		must.Succeed(t, err)
		must.Succeed(t, resp.Body.Close())
	}
	if n := answered.Load(); n != 5 {
		t.Errorf("%d were answered", n)
	}
	hasty := transport("hasty", func(o *client.TransportOptions) {
		o.Limits = []client.Limit{{Window: time.Hour, Max: 1}}
	})
	resp, err := hasty.Get(api.URL)
	must.Succeed(t, err)
	must.Succeed(t, resp.Body.Close())
	if _, err := hasty.Post(api.URL, "text/plain", strings.NewReader("x")); !errors.Is(err,
		client.ErrNoTurn) {
		t.Errorf("without room for an hour: %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	r, err := http.NewRequestWithContext(left, "GET", api.URL, nil)
	must.Succeed(t, err)
	if _, err := patient.Transport.RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Errorf("of one that left: %v", err)
	}
	if n := answered.Load(); n != 6 {
		t.Errorf("%d were answered, want 6", n)
	}
}

// TestTransportThatNeverMaySend has a limit of none: no wait brings a turn, so it tries once.
func TestTransportThatNeverMaySend(t *testing.T) {
	b := newBed(t, 1)
	rt, err := client.NewTransport(client.TransportOptions{
		GateOptions: client.GateOptions{Client: b.client(), Outage: client.FailOpen,
			Wait: 5 * time.Second, Limits: []client.Limit{{Window: time.Second}}},
		Checks:  func(*http.Request) []client.Check { return []client.Check{{Key: "k"}} },
		MaxWait: 3 * time.Second,
		Base:    http.NewFileTransport(nil), // panics if it is called
	})
	must.Succeed(t, err)
	body := &closed{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:1", body)
	must.Succeed(t, err)
	if _, err := rt.RoundTrip(r); !errors.Is(err, client.ErrNoTurn) || !body.is {
		t.Errorf("%v, its body is closed: %t", err, body.is)
	}
	var asked int64
	for _, n := range b.ops("acquire") {
		asked += n
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// closed is a body that records whether it was closed.
type closed struct {
	io.Reader
	is bool
}

// Close implements io.Closer.
func (c *closed) Close() error {
	c.is = true
	return nil
}
