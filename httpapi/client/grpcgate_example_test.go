package client_test

import (
	"context"
	"fmt"
	"net"
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
