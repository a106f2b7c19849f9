package main

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
)

// TestGRPCConnectionsAge: a client that goes on asking is moved to another connection, and notices
// nothing.
func TestGRPCConnectionsAge(t *testing.T) {
	s := startServe(t, t.Context(), "--gossip", "", "--grpc", "127.0.0.1:0",
		"--grpc-max-connection-age", "200ms", "--grpc-max-connection-age-grace", "1m")
	var ready struct{ GRPC string }
	decode(t, s.out.String(), &ready)
	conn, err := grpc.NewClient(ready.GRPC,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	used := map[string]bool{}
	eventually(t, "another connection", patience, func() bool {
		var at peer.Peer
		if _, err := healthv1.NewHealthClient(conn).Check(t.Context(),
			&healthv1.HealthCheckRequest{}, grpc.Peer(&at)); err != nil {
			t.Fatal(err)
		}
		used[at.LocalAddr.String()] = true
		return len(used) > 1
	})
}
