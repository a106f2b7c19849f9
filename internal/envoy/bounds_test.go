package envoy_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/listener"
)

// dialFrom is dial from another loopback address.
func dialFrom(t *testing.T, s *envoy.Server, address string) *grpc.ClientConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := grpc.NewClient(s.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", to)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// unfinished begins a request and never sends its body. It is canceled if it does not end within 20
// seconds.
func unfinished(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	time.AfterFunc(20*time.Second, cancel)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true},
		ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// isServed asks until an answer comes in time. A lack of room for the request fails at once.
func isServed(t *testing.T, conn *grpc.ClientConn, what string) {
	t.Helper()
	var code string
	var err error
	for i := range 20 { // each time about another address, so that none reaches its limit
		code, err = ask(t.Context(), conn, fmt.Sprint("ip=", i))
		switch status.Code(err) {
		case codes.DeadlineExceeded, codes.Unavailable, codes.Unknown: // the machine stood still
			continue
		}
		break
	}
	if code != "OK" || err != nil {
		t.Errorf("%s: %s, %v", what, code, err)
	}
}

// TestUnfinishedRequests begins more requests than one address may have and finishes none. Another
// address is served meanwhile, and the requests end.
func TestUnfinishedRequests(t *testing.T) {
	s := serve(t, envoy.Options{Limits: listener.Limits{MaxMemory: 1 << 20,
		RequestTimeout: 500 * time.Millisecond}})
	greedy := dialFrom(t, s, "127.0.0.1")
	ended := map[codes.Code]int{}
	var begun []grpc.ClientStream
	for range 40 {
		begun = append(begun, unfinished(t, greedy))
	}
	isServed(t, dialFrom(t, s, "127.0.0.2"), "another address")
	for _, b := range begun {
		ended[status.Code(b.RecvMsg(new(ratelimitv3.RateLimitResponse)))]++
	}
	// One address has 42 KiB, enough for the beginnings of 2 requests at a time.
	if ended[codes.DeadlineExceeded] < 2 ||
		ended[codes.DeadlineExceeded]+ended[codes.ResourceExhausted] != 40 {
		t.Errorf("they ended with %v", ended)
	}
	for by := time.Now().Add(20 * time.Second); ; {
		code, err := ask(t.Context(), greedy, "ip=1")
		if code == "OK" {
			return
		}
		if time.Now().After(by) {
			t.Fatalf("requests that have ended keep their places: %v", err)
		}
	}
}

// TestStreamsThatStay opens more streams than one address may have. Refused streams take nothing
// from requests.
func TestStreamsThatStay(t *testing.T) {
	s := serve(t, envoy.Options{Limits: listener.Limits{MaxMemory: 8 << 20,
		RequestTimeout: 100 * time.Millisecond}})
	conn := dialFrom(t, s, "127.0.0.1")
	var stayed []healthv1.Health_WatchClient
	for range 40 { // one address has 256 KiB for streams, enough for 2
		w, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = w.Recv(); err == nil {
			stayed = append(stayed, w)
		} else if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("refused with %v", err)
		}
	}
	if len(stayed) != 2 {
		t.Errorf("%d of 40 streams stay, want 2", len(stayed))
	}
	isServed(t, conn, "beside streams")
	time.Sleep(300 * time.Millisecond) // longer than a request may take
	stop := make(chan error, 1)
	go func() {
		_, err := stayed[0].Recv()
		stop <- err
	}()
	select {
	case err := <-stop:
		t.Errorf("a stream ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
}
