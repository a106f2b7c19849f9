package client_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/httpapi/client/grpcgate"
)

// example is the testing.TB of a bed in an example.
type example struct {
	testing.TB
	ends []func()
}

func (e *example) Context() context.Context { return context.Background() }
func (e *example) Helper()                  {}
func (e *example) Cleanup(fn func())        { e.ends = append(e.ends, fn) }
func (e *example) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (e *example) Error(args ...any)        { panic(fmt.Sprint(args...)) }

// startNode starts a node. It returns its address and a function that stops it.
func startNode() (address string, stop func()) {
	e := new(example)
	b := newBed(e, 1)
	return b.nodes[0].address, func() {
		for _, end := range slices.Backward(e.ends) {
			end()
		}
	}
}

// startClient starts a node, and makes a client of it as ExampleClient_Acquire does.
func startClient() (c *client.Client, stop func()) {
	address, end := startNode()
	c, err := client.New(client.Options{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	return c, func() {
		_ = c.Close(context.Background())
		end()
	}
}

// A user may reply twice a minute.
func ExampleClient_IsActionAllowed() {
	c, stop := startClient()
	defer stop()
	ctx := context.Background()
	for range 3 {
		fmt.Println(c.IsActionAllowed(ctx, "ann", "reply", time.Minute, 2))
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

// A client learns the other nodes from one, sends each call to the owner of its key, and may be
// shared.
func ExampleClient_Acquire() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Options{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer c.Close(ctx)
	answer, err := c.Acquire(ctx, client.AcquireRequest{Check: client.Check{
		Key: "alice", N: 1,
		Limits: []client.Limit{
			{Window: time.Minute, Max: 15},
			{Window: 24 * time.Hour, Max: 50},
		},
	}})
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Allowed, answer.Limits[0].Remaining)
	// Output: true 14
}

// Message control: a receiver gets at most 15 messages a minute and 50 a day, and at most 2 of the
// same content in 59 seconds and 5 in 59 minutes. All of it is one decision.
func ExampleGate() {
	c, stop := startClient()
	defer stop()
	gate, err := client.NewGate(client.GateOptions{
		Client: c, Outage: client.FailOpen, Wait: 5 * time.Second,
		Limits: []client.Limit{{Window: time.Minute, Max: 15}, {Window: 24 * time.Hour, Max: 50}},
	})
	if err != nil {
		panic(err)
	}
	same := []client.Limit{{Window: 59 * time.Second, Max: 2}, {Window: 59 * time.Minute, Max: 5}}
	messages := gate.HandlerOf(func(r *http.Request) []client.Check {
		to, text := r.FormValue("to"), r.FormValue("text")
		return []client.Check{{Key: to}, {Key: to + ":" + text, Limits: same}}
	}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		w := httptest.NewRecorder()
		messages.ServeHTTP(w, httptest.NewRequest("POST", "/?to=bob&text=hello", nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 false
	// 200 false
	// 429 true
}

// A language model's answer costs tokens that nobody knows beforehand: reserve an estimate, and
// settle the actual cost.
func ExampleClient_Reserve() {
	c, stop := startClient()
	defer stop()
	ctx := context.Background()
	estimate := client.AcquireRequest{Check: client.Check{Key: "tokens:ann", N: 4000,
		Limits: []client.Limit{{Window: time.Minute, Max: 10_000}}}}
	for _, took := range []int64{350, 5200, 900} {
		r, a, err := c.Reserve(ctx, estimate)
		if err != nil {
			panic(err)
		}
		if r == nil {
			fmt.Println("wait, for this many are left:", a.Limits[0].Remaining)
			continue
		}
		if err := r.Settle(ctx, took); err != nil { // after the model has answered
			panic(err)
		}
		fmt.Println("settled", took)
	}
	// Output:
	// settled 350
	// settled 5200
	// settled 900
}

// A third-party API allows two requests a second for all of our machines together.
func ExampleTransport() {
	c, stop := startClient()
	defer stop()
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	turns, err := client.NewTransport(client.TransportOptions{
		GateOptions: client.GateOptions{Client: c, Outage: client.FailClosed, Wait: time.Second,
			Limits: []client.Limit{{Window: time.Second, Max: 2}}},
		Checks: func(r *http.Request) []client.Check {
			return []client.Check{{Key: "api:" + r.URL.Hostname()}}
		},
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		resp, err := (&http.Client{Transport: turns}).Get(api.URL)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 404
	// 404
	// 404
}

// Calls to a gRPC server are limited by the address that they come from.
func ExampleGate_gRPC() {
	c, stop := startClient()
	defer stop()
	gate, err := client.NewGate(client.GateOptions{
		Client: c, Outage: client.FailOpen, Wait: 5 * time.Second,
		Limits: []client.Limit{{Window: time.Minute, Max: 2}},
	})
	if err != nil {
		panic(err)
	}
	byAddress := func(ctx context.Context, method string, _ any) []client.Check {
		from, _ := peer.FromContext(ctx)
		host, _, _ := net.SplitHostPort(from.Addr.String())
		return []client.Check{{Key: method + " " + host}}
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcgate.Unary(gate, byAddress)),
		grpc.ChainStreamInterceptor(grpcgate.Stream(gate, byAddress)))
	defer server.Stop()
	healthv1.RegisterHealthServer(server, grpchealth.NewServer())
	for range 3 {
		fmt.Println(status.Code(callHealth(server)))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// callHealth serves one call of a client.
func callHealth(server *grpc.Server) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = healthv1.NewHealthClient(conn).Check(context.Background(),
		&healthv1.HealthCheckRequest{})
	return err
}
