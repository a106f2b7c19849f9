package envoy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/costtable"
	"twotier.dev/twotier/internal/testing/must"
)

// raw is a client that controls each HTTP/2 frame it sends. It grants no window for answers.
type raw struct {
	t      *testing.T
	nc     net.Conn
	mu     sync.Mutex // guards writing
	framer *http2.Framer
	stream uint32
	closed chan struct{}
}

// dialRaw connects a raw client from a loopback address.
func dialRaw(t *testing.T, s *envoy.Server, from string) *raw {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := dialer.DialContext(t.Context(), "tcp", s.Addr().String())
	must.Succeed(t, err)
	t.Cleanup(func() { nc.Close() })
	r := &raw{t: t, nc: nc, framer: http2.NewFramer(nc, nc), closed: make(chan struct{})}
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	r.send(func() error {
		return r.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	})
	go r.runRead()
	return r
}

// runRead acknowledges settings and pings until the server hangs up.
func (r *raw) runRead() {
	defer close(r.closed)
	for {
		f, err := r.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				r.send(r.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				r.send(func() error { return r.framer.WritePing(true, f.Data) })
			}
		}
	}
}

// send writes a frame. The server may hang up at any time.
func (r *raw) send(write func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = write()
}

// begin sends the headers of a request, with a given number of bytes of metadata.
func (r *raw) begin(method string, metadata int) uint32 {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "x", Value: strings.Repeat("a", metadata), Sensitive: true}} {
		if err := enc.WriteField(f); err != nil {
			r.t.Error(err)
		}
	}
	r.stream += 2
	id := r.stream - 1
	r.send(func() error {
		return r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id,
			BlockFragment: block.Bytes(), EndHeaders: true})
	})
	return id
}

// readAnswers grants windows for answers from now on.
func (r *raw) readAnswers() {
	r.send(func() error {
		return r.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
			Val: 1<<16 - 1})
	})
}

// data sends a part of a message.
func (r *raw) data(id uint32, end bool, part []byte) {
	r.send(func() error { return r.framer.WriteData(id, end, part) })
}

// reset abandons a request.
func (r *raw) reset(id uint32) {
	r.send(func() error { return r.framer.WriteRSTStream(id, http2.ErrCodeCancel) })
}

const (
	decideMethod = ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName
	healthMethod = healthv1.Health_Check_FullMethodName
	watchMethod  = healthv1.Health_Watch_FullMethodName
)

// wide returns a request with long keys, whose answer is almost as long, as gRPC sends it.
func wide(t *testing.T, descriptors, key int) []byte {
	t.Helper()
	m := &ratelimitv3.RateLimitRequest{Domain: "edge"}
	for i := range descriptors {
		m.Descriptors = append(m.Descriptors, &commonv3.RateLimitDescriptor{
			Entries: []*commonv3.RateLimitDescriptor_Entry{
				{Key: string(rune('a'+i)) + strings.Repeat("k", key), Value: "v"}},
			Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1 << 31,
				Unit: 2},
		})
	}
	b, err := proto.Marshal(m)
	must.Succeed(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for by := time.Now().Add(30 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(by) {
			t.Fatal("not within 30 seconds: ", what)
		}
	}
}

// dialFrom is dial from another loopback address.
func dialFrom(t *testing.T, s *envoy.Server, address string) *grpc.ClientConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := grpc.NewClient(s.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", to)
		}))
	must.Succeed(t, err)
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
	must.Succeed(t, err)
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
		must.Succeed(t, err)
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

// TestEveryMethodHasACost compares the methods with the table of costs.
func TestEveryMethodHasACost(t *testing.T) {
	costtable.Compare(t, "../../docs/security.md", serve(t, envoy.Options{}).Methods(),
		func(call string) bool { return strings.Contains(call, ".v") })
}
