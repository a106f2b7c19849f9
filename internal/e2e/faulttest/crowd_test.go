package faulttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"twotier.dev/twotier/internal/peerhttp"
)

// httpHead returns the head of a request. Its extra lines end in \r\n.
func httpHead(secret, request, extra string) string {
	if secret != "" {
		extra += "Authorization: Bearer " + secret + "\r\n"
	}
	return request + " HTTP/1.1\r\nHost: localhost\r\n" + extra + "\r\n"
}

// httpBody returns the head of a request with a body of n bytes.
func httpBody(secret, request, media string, n int) string {
	return httpHead(secret, request,
		fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n", media, n))
}

// partsOf returns unfinished requests: a long header, a body and a chunk of n bytes that lack an
// end.
func partsOf(secret, request, media string, n int) []string {
	body := strings.Repeat(" ", n-1)
	return []string{
		request + " HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 8000),
		request + " HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 60_000),
		httpBody(secret, request, media, n) + body,
		httpHead(secret, request, "Transfer-Encoding: chunked\r\nContent-Type: "+media+"\r\n") +
			fmt.Sprintf("%x\r\n", n) + body,
	}
}

func listenUnread(secret string) []string {
	longest, long := manyWindows(1<<20), manyWindows(16<<10)
	const batch, media = "POST /v1/batch", "application/json"
	return []string{
		strings.Repeat(httpBody(secret, batch, media, len(long))+long, 10),
		strings.Repeat(httpBody(secret, batch, media, len(long))+long, 10),
		httpBody(secret, batch, media, len(longest)) + longest,
		strings.Repeat(httpHead(secret, "GET /openapi.json", ""), 50),
		strings.Repeat(httpHead(secret, "GET /metrics", ""), 50),
	}
}

func listenUnfinished(secret string) []string {
	return partsOf(secret, "POST /v1/batch", "application/json", 1<<20)
}

// httpSilent returns a finished request if there is a token. Nothing follows.
func httpSilent(secret string) []string {
	if secret == "" {
		return nothing(secret)
	}
	return []string{httpHead(secret, "GET /v1/cluster", "")}
}

func adminUnread(secret string) (list []string) {
	for _, path := range []string{"metrics", "v1/rules", "debug/pprof/heap",
		"debug/pprof/goroutine?debug=2"} {
		list = append(list, strings.Repeat(httpHead(secret, "GET /"+path, ""), 10))
	}
	return list
}

func adminUnfinished(secret string) []string {
	return partsOf(secret, "PUT /v1/rules", "application/json", 256<<10)
}

func peerUnread(secret string) []string {
	return []string{
		strings.Repeat(httpBody(secret, "POST /peer", peerhttp.Media, 1)+"x", 500),
		strings.Repeat(httpHead(secret, "GET /metrics", ""), 500),
	}
}

func peerUnfinished(secret string) []string {
	return partsOf(secret, "POST /peer", peerhttp.Media, peerhttp.MaxBody)
}

// respAuth returns the command that presents a token.
func respAuth(secret string) string {
	if secret == "" {
		return ""
	}
	return "AUTH " + secret + "\r\n"
}

func respUnread(secret string) []string {
	count := "TT.COUNT k"
	for i := range 64 {
		count += fmt.Sprintf(" %ds", i+1)
	}
	return []string{respAuth(secret) + strings.Repeat(count+" BOUNDS\r\n", 10_000),
		respAuth(secret) + strings.Repeat("COMMAND\r\n", 10_000)}
}

func respUnfinished(secret string) []string {
	return []string{
		respAuth(secret) + "*2\r\n$4\r\nECHO\r\n$60000\r\n" + strings.Repeat("x", 50_000),
		respAuth(secret) + "*1000\r\n" + strings.Repeat("$1\r\nx\r\n", 999),
		respAuth(secret) + "TT.ADD " + strings.Repeat("x", 3000),
	}
}

func respSilent(secret string) []string { return []string{respAuth(secret)} }

// frames collects the data of a gRPC client that grants no window for answers.
type frames struct {
	bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
	secret string
	stream uint32
}

func newFrames(secret string) *frames {
	f := &frames{secret: secret}
	f.framer, f.fields = http2.NewFramer(f, nil), hpack.NewEncoder(&f.block)
	f.WriteString(http2.ClientPreface)
	_ = f.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	return f // a write into memory does not fail
}

// begin sends the header of a request, with a given number of bytes of metadata.
func (f *frames) begin(method string, metadata int) {
	fields := []hpack.HeaderField{{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "x", Value: strings.Repeat("a", metadata), Sensitive: true}}
	if f.secret != "" {
		fields = append(fields, hpack.HeaderField{Name: "authorization",
			Value: "Bearer " + f.secret})
	}
	f.block.Reset()
	for _, field := range fields {
		_ = f.fields.WriteField(field)
	}
	f.stream += 2
	_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.stream - 1,
		BlockFragment: f.block.Bytes(), EndHeaders: true})
}

// data sends a part of the message of the last request.
func (f *frames) data(end bool, part []byte) { _ = f.framer.WriteData(f.stream-1, end, part) }

// requests returns n requests of one message.
func requests(secret string, n int, method string, metadata int, message []byte) string {
	f := newFrames(secret)
	for range n {
		f.begin(method, metadata)
		f.data(true, message)
	}
	return f.String()
}

const (
	decide = ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName
	check  = healthv1.Health_Check_FullMethodName
	watch  = healthv1.Health_Watch_FullMethodName
)

// decision returns the message of a request with some descriptors whose keys have the given length.
func decision(descriptors, key int) *ratelimitv3.RateLimitRequest {
	m := &ratelimitv3.RateLimitRequest{Domain: "edge"}
	for i := range descriptors {
		m.Descriptors = append(m.Descriptors, &commonv3.RateLimitDescriptor{
			Entries: []*commonv3.RateLimitDescriptor_Entry{
				{Key: string(rune('a'+i)) + strings.Repeat("k", key), Value: "v"}},
			Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1 << 31,
				Unit: 2},
		})
	}
	return m
}

// grpcMessage returns a message in gRPC's framing.
func grpcMessage(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // its texts are UTF-8
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

func grpcUnread(secret string) []string {
	empty := make([]byte, 5)
	return []string{
		requests(secret, 200, decide, 0, grpcMessage(decision(16, 900))),
		requests(secret, 200, check, 14_000, empty),
		requests(secret, 200, watch, 0, empty),
	}
}

func grpcUnfinished(secret string) []string {
	message := grpcMessage(decision(60, 900))
	parts := newFrames(secret)
	for range 200 {
		parts.begin(decide, 0)
		parts.data(false, message[:16<<10])
		parts.data(false, message[16<<10:30<<10])
	}
	begun := requests(secret, 1, decide, 12_000, nil)
	return []string{parts.String(), http2.ClientPreface[:10], begun[:len(begun)/2]}
}

func grpcSilent(secret string) []string {
	if secret == "" {
		return nothing(secret)
	}
	return []string{requests(secret, 1, decide, 0, grpcMessage(decision(1, 1)))}
}

// gossipMessage returns a message that is not encrypted by the secret of the cluster, and announces
// n bytes.
func gossipMessage(n uint32, body int) string {
	return string(binary.BigEndian.AppendUint32([]byte{10}, n)) + strings.Repeat("x", body)
}

func gossipUnread(string) []string { return []string{gossipMessage(10_000, 10_000)} }

func gossipUnfinished(string) []string {
	return []string{gossipMessage(16<<20, 15<<20), gossipMessage(16<<10, 15<<10), "\x0a\x00"}
}

func nothing(string) []string { return []string{""} }
