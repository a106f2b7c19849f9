package envoy_test

import (
	"context"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/listener"
)

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
		&ratelimitv3.RateLimitRequest{Domain: "edge",
			Descriptors: []*commonv3.RateLimitDescriptor{descriptor(text)}}, grpc.Peer(&at))
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
