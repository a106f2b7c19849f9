package envoy_test

import (
	"bytes"
	"encoding/binary"
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
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"twotier.dev/twotier/internal/envoy"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
