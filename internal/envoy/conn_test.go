package envoy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
)

// entries encodes a descriptor as Envoy does: names and values in turn, of any bytes.
func entries(texts ...string) (descriptor []byte) {
	for i := 0; i < len(texts); i += 2 {
		var entry []byte
		for j, text := range texts[i : i+2] {
			entry = protowire.AppendTag(entry, protowire.Number(1+j), protowire.BytesType)
			entry = protowire.AppendString(entry, text)
		}
		descriptor = protowire.AppendTag(descriptor, 1, protowire.BytesType)
		descriptor = protowire.AppendBytes(descriptor, entry)
	}
	return descriptor
}

// forwarded encodes a request of the domain edge.
func forwarded(descriptors ...[]byte) []byte {
	r := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "edge")
	for _, d := range descriptors {
		r = protowire.AppendBytes(protowire.AppendTag(r, 2, protowire.BytesType), d)
	}
	return r
}

// asIs is a codec that sends encoded requests unchanged.
type asIs struct{ encoding.CodecV2 }

func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// askRaw sends a request over a connection and returns its code.
func askRaw(ctx context.Context, conn *grpc.ClientConn, request []byte) (string, error) {
	var answer ratelimitv3.RateLimitResponse
	err := conn.Invoke(ctx, ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, request,
		&answer, grpc.ForceCodecV2(asIs{encoding.GetCodecV2("proto")}))
	return answer.GetOverallCode().String(), err
}

// TestValuesAreAnyBytes sends values that are not UTF-8: each has a separate limit.
func TestValuesAreAnyBytes(t *testing.T) {
	conn := dial(t, serve(t, envoy.Options{}), insecure.NewCredentials())
	for _, value := range []string{"\xff\xfe", "\xff\xff", "a\x80"} {
		for i, want := range []string{"OK", "OK", "OK", "OVER_LIMIT"} {
			code, err := askRaw(t.Context(), conn, forwarded(entries("ip", value),
				entries("user", value, "path", value)))
			if err != nil || code != want {
				t.Errorf("%q, request %d: %s, %v", value, i, code, err)
			}
		}
	}
	for name, request := range map[string][]byte{
		"a tag of nothing":        {0},
		"a value that is cut off": forwarded(entries("ip", "\xff"))[:12],
		"an entry that is no message": append(forwarded(entries("ip", "\xff")),
			protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "x")...),
	} {
		if code, err := askRaw(t.Context(), conn, request); err == nil {
			t.Errorf("%s: %s", name, code)
		}
	}
}

// TestLongValues sends the longest headers that Envoy accepts by default, in as many descriptors as
// a request may have. Each value has a separate limit, whichever of its bytes differs.
func TestLongValues(t *testing.T) {
	conn := dial(t, serve(t, envoy.Options{Limits: listener.Limits{MaxMemory: 128 << 20}}),
		insecure.NewCredentials())
	long := strings.Repeat("x", 33_000)
	for i, want := range []string{"OK", "OK", "OK", "OK", "OK", "OVER_LIMIT"} {
		code, err := askRaw(t.Context(), conn, forwarded(entries("user", long)))
		if err != nil || code != want {
			t.Errorf("request %d: %s, %v", i, code, err)
		}
	}
	code, err := askRaw(t.Context(), conn, forwarded(entries("user", long+"y"),
		entries("user", long+"y", "path", long)))
	if err != nil || code != "OK" {
		t.Errorf("a value twice: %s, %v", code, err)
	}
	var most [][]byte
	for i := range 64 {
		most = append(most, entries("user", strings.Repeat("x", 60_000+i)))
	}
	if code, err = askRaw(t.Context(), conn, forwarded(most...)); err != nil || code != "OK" {
		t.Errorf("64 values: %s, %v", code, err)
	}
}

// FuzzForwardedByEnvoy sends any request that Envoy can forward for a stranger: any values, also in
// several descriptors, and any hits. There is always a decision, whatever was counted before, and
// more hits than a limit allows are over it.
func FuzzForwardedByEnvoy(f *testing.F) {
	f.Add("203.0.113.7", "/a", uint64(1), uint32(0), false)
	f.Add("\xff\xfe", "\xed\xa0\x80", uint64(1<<31), uint32(1<<31), true)
	f.Add("sha256:00", strings.Repeat("x", 33_000), uint64(1<<64-1), uint32(1<<32-1), false)
	f.Add("", "\x00", uint64(0), uint32(1), true)
	b := start(f)
	f.Fuzz(func(t *testing.T, value, other string, own uint64, hits uint32, negative bool) {
		first := entries("ip", value)
		first = protowire.AppendTag(first, 3, protowire.BytesType)
		first = protowire.AppendBytes(first,
			protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), own))
		first = protowire.AppendTag(first, 4, protowire.VarintType)
		first = protowire.AppendVarint(first, protowire.EncodeBool(negative))
		request := forwarded(first, entries("user", other), entries("user", other, "path", value))
		request = protowire.AppendTag(request, 3, protowire.VarintType)
		request = protowire.AppendVarint(request, uint64(hits))
		var r ratelimitv3.RateLimitRequest
		must.Succeed(t, envoy.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)},
			&r))
		answer, err := b.ShouldRateLimit(t.Context(), nil, &r)
		must.Succeed(t, err)
		if _, err := envoy.NewCodec().Marshal(answer); err != nil {
			t.Error(err)
		}
		over := !negative && own > 3 || hits > 9
		if got := answer.GetOverallCode().String(); over && got != "OVER_LIMIT" {
			t.Errorf("%d and %d hits: %s", own, hits, got)
		}
	})
}

// FuzzForwardedAsJSON sends the same requests as JSON, encoded as Go and JavaScript do.
func FuzzForwardedAsJSON(f *testing.F) {
	f.Add("203.0.113.7", uint64(1))
	f.Add("\xff\xfe\x00\"\\", uint64(1<<64-1))
	f.Add(`\ud800`, uint64(1<<31))
	b := start(f)
	f.Fuzz(func(t *testing.T, value string, hits uint64) {
		written, err := json.Marshal(value)
		must.Succeed(t, err)
		units := `"` // each byte as if it were the upper half of a code unit
		for i := range len(value) {
			units += fmt.Sprintf(`\u%02x00`, value[i])
		}
		for _, text := range []string{string(written), units + `"`} {
			body := fmt.Sprintf(`{"domain":"edge","descriptors":[{"entries":[{"key":"ip",`+
				`"value":%s}],"hitsAddend":"%d"}]}`, text, hits)
			if _, over, err := b.JSON(t.Context(), nil, []byte(body)); err != nil ||
				hits > 3 && !over {
				t.Errorf("%s: over %v, %v", body, over, err)
			}
		}
	})
}

// holding delays the acquires of one key until it is released.
type holding struct {
	*bed
	key      string
	arrived  chan struct{}
	released chan struct{}
}

func (h *holding) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if string(op.Checks[0].Key) == h.key {
		close(h.arrived)
		<-h.released
	}
	return h.bed.Do(ctx, op, res)
}

// askFrom sends one descriptor, and returns the client's address of the connection in use.
func askFrom(ctx context.Context, conn *grpc.ClientConn, text string) (from string, err error) {
	var at peer.Peer
	_, err = ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx,
		asking("edge", descriptor(text)), grpc.Peer(&at))
	if err != nil {
		return "", err
	}
	return at.LocalAddr.String(), nil
}

// TestConnectionsAreReplaced holds a request while its connection reaches its greatest age. Later
// requests use another connection, none of them fails, and the held request ends on the first one.
func TestConnectionsAreReplaced(t *testing.T) {
	b := start(t)
	h := &holding{b, "ip=held", make(chan struct{}), make(chan struct{})}
	s := serve(t, envoy.Options{Limiter: envoy.NewLimiter(h, b.book, b.counted),
		MaxConnAge: 300 * time.Millisecond, MaxConnAgeGrace: time.Minute,
		Limits: listener.Limits{RequestTimeout: time.Minute}})
	conn := dial(t, s, insecure.NewCredentials())
	type answer struct {
		from string
		err  error
	}
	held := make(chan answer, 1)
	go func() {
		from, err := askFrom(t.Context(), conn, "ip=held")
		held <- answer{from, err}
	}()
	<-h.arrived
	release := sync.OnceFunc(func() { close(h.released) })
	defer release()
	seen, last := map[string]bool{}, ""
	eventually(t, "requests use another connection", func() bool {
		from, err := askFrom(t.Context(), conn, "path=/free")
		if err != nil {
			t.Error(err)
		}
		seen[from], last = true, from
		return len(seen) > 1
	})
	select {
	case a := <-held:
		t.Errorf("the held request has ended: %+v", a)
	default:
	}
	release()
	if a := <-held; a.err != nil || a.from == last {
		t.Errorf("the held request: %+v, want that it ends on an older connection than %s", a,
			last)
	}
}

// TestOldStreamsAreCut watches the health of a server for longer than a connection may last: the
// stream goes on in the grace period, and is cut at its end.
func TestOldStreamsAreCut(t *testing.T) {
	const age, grace = 200 * time.Millisecond, time.Second
	s := serve(t, envoy.Options{MaxConnAge: age, MaxConnAgeGrace: grace})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	stream, err := healthv1.NewHealthClient(dial(t, s, insecure.NewCredentials())).Watch(ctx,
		&healthv1.HealthCheckRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if lasted := time.Since(began); status.Code(err) != codes.Unavailable || lasted < grace {
		t.Errorf("%v after %v, want that it is cut after %v", err, lasted, age+grace)
	}
}
