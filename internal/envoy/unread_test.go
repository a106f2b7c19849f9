package envoy_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
)

// hasHungUp reports whether the server has closed the connection.
func (r *raw) hasHungUp() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// TestUnreadAnswersAreCharged asks without ever reading an answer, at the limiter and at the health
// service, which needs no token. Unwritten answers are charged to the address until the server
// hangs up, and use up the memory that the address may have.
func TestUnreadAnswersAreCharged(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		metadata     int
		message      []byte
		want         int64 // bytes that one unread answer holds at least
	}{
		{"decision", decideMethod, 0, wide(t, 16, 900), 12 << 10},
		{"health", healthMethod, 14000, make([]byte, 5), 14000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, envoy.Options{Limits: listener.Limits{MaxMemory: 8 << 20,
				RequestTimeout: time.Second}})
			r := dialRaw(t, s, "127.0.0.1")
			most := s.CallBytes() / 2
			for n := int64(1); n <= 3; n++ {
				id := r.begin(tt.method, tt.metadata)
				r.data(id, true, tt.message)
				eventually(t, "an unread answer is charged", func() bool {
					return s.CallBytesInUse() >= n*tt.want || r.hasHungUp()
				})
			}
			for range 400 {
				r.data(r.begin(tt.method, tt.metadata), true, tt.message)
			}
			eventually(t, "the server hangs up", func() bool {
				if used := s.CallBytesInUse(); used > most {
					t.Fatalf("%d bytes are in use, one address may have %d", used, most)
				}
				return r.hasHungUp()
			})
			eventually(t, "the memory is free again",
				func() bool { return s.CallBytesInUse() == 0 })
		})
	}
}

// TestResetRequestsAreReleased abandons a request on a connection that stays, and then reads no
// answer to a second one. The first takes no memory any more, and the deadline of the second still
// ends the connection, although it has not passed when the deadline of the first does.
func TestResetRequestsAreReleased(t *testing.T) {
	s := serve(t, envoy.Options{Limits: listener.Limits{RequestTimeout: time.Second}})
	r := dialRaw(t, s, "127.0.0.1")
	ask := func() uint32 {
		id := r.begin(decideMethod, 0)
		r.data(id, true, wide(t, 16, 900))
		eventually(t, "it is answered", func() bool { return s.Unread() == 1 })
		return id
	}
	r.reset(ask())
	eventually(t, "it is released", func() bool { return s.CallBytesInUse() == 0 })
	time.Sleep(500 * time.Millisecond)
	ask()
	eventually(t, "the server hangs up", r.hasHungUp)
}

// TestCloseDoesNotWaitForClients closes a server with connections that execute nothing: a silent
// one, one that has only sent the preface, unfinished requests, streams and answers that nobody
// reads. None of them delays the stop or causes an error.
func TestCloseDoesNotWaitForClients(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin func(t *testing.T, s *envoy.Server)
	}{
		{"silent", func(t *testing.T, s *envoy.Server) {
			nc, err := net.Dial("tcp", s.Addr().String())
			must.Succeed(t, err)
			t.Cleanup(func() { nc.Close() })
		}},
		{"preface", func(t *testing.T, s *envoy.Server) { dialRaw(t, s, "127.0.0.1") }},
		{"unfinished request", func(t *testing.T, s *envoy.Server) {
			dialRaw(t, s, "127.0.0.1").begin(decideMethod, 0)
		}},
		{"stream", func(t *testing.T, s *envoy.Server) {
			r := dialRaw(t, s, "127.0.0.1")
			r.data(r.begin(watchMethod, 0), true, make([]byte, 5))
		}},
		{"unread answer", func(t *testing.T, s *envoy.Server) {
			r := dialRaw(t, s, "127.0.0.1")
			r.data(r.begin(decideMethod, 0), true, wide(t, 1, 10))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := envoy.New(envoy.Options{Limiter: start(t).Limiter, Listen: "127.0.0.1:0",
				Limits: listener.Limits{RequestTimeout: time.Minute}})
			must.Succeed(t, err)
			must.Succeed(t, s.Open(t.Context()))
			tt.begin(t, s)
			eventually(t, "it is connected", func() bool { return s.Conns() == 1 })
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Errorf("the stop waited: %v", err)
			}
			eventually(t, "everything is returned", func() bool {
				return s.Conns() == 0 && s.CallBytesInUse() == 0
			})
		})
	}
}

// TestTinyFramesAreCharged sends a message in frames of one byte each, which take far more memory
// than their bytes.
func TestTinyFramesAreCharged(t *testing.T) {
	s := serve(t, envoy.Options{Limits: listener.Limits{MaxMemory: 2 << 20,
		RequestTimeout: time.Minute}})
	r := dialRaw(t, s, "127.0.0.1")
	id, message := r.begin(decideMethod, 0), wide(t, 16, 900)
	for i := range 1000 {
		r.data(id, false, message[i:i+1])
	}
	eventually(t, "the frames are charged", func() bool { return s.CallBytesInUse() > 100_000 })
	for i := range 10_000 {
		r.data(id, false, message[1000+i:1001+i])
	}
	eventually(t, "the request is refused", func() bool { return s.CallBytesInUse() == 0 })
}

// TestSmallDescriptorsAreNotDecoded sends a message that would be far larger once decoded.
func TestSmallDescriptorsAreNotDecoded(t *testing.T) {
	s := serve(t, envoy.Options{})
	message := bytes.Repeat([]byte{2<<3 | 2, 0}, 1<<19) // empty descriptors
	_, err := askRaw(t.Context(), dial(t, s, insecure.NewCredentials()), message)
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(),
		"too many descriptors") {
		t.Errorf("%.200v", err)
	}
}

// TestTrustedProxyMayUseEverything sends more concurrent requests than one address may have, from
// the address of a proxy.
func TestTrustedProxyMayUseEverything(t *testing.T) {
	s := serve(t, envoy.Options{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Limits: listener.Limits{MaxMemory: 2 << 20, RequestTimeout: 5 * time.Second, MaxConns: 4,
			MaxConnsPerAddress: 1}})
	a, b := dialRaw(t, s, "127.0.0.1"), dialRaw(t, s, "127.0.0.1")
	for range 100 {
		a.begin(decideMethod, 0)
	}
	eventually(t, "the proxy has more than a half", func() bool {
		return s.CallBytesInUse() > s.CallBytes()*2/7*9/10 // the part for requests that begin
	})
	for _, r := range []*raw{a, b} {
		r.nc.Close()
	}
	eventually(t, "everything is returned", func() bool { return s.CallBytesInUse() == 0 })
}

// TestBurstOfOneAddress sends bursts of requests from one address, with default memory, as an Envoy
// does, while decisions stand still until requests wait for memory. Each request gets a decision.
func TestBurstOfOneAddress(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		requests, conns       int
		descriptors, valueLen int
		secure                bool
	}{
		{"small", 600, 3, 1, 1, false},
		{"thousands", 5000, 20, 1, 1, false},
		{"many descriptors", 1000, 8, 20, 20, false},
		{"TLS", 1000, 8, 20, 20, true},
		{"long values", 600, 8, 1, 8 << 10, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			b.gate = make(chan struct{})
			opt := envoy.Options{Limiter: b.Limiter,
				Limits: listener.Limits{RequestTimeout: time.Minute}}
			creds := insecure.NewCredentials()
			if tt.secure {
				opt.TLS, creds = secured(t)
			}
			s := serve(t, opt)
			var clients []ratelimitv3.RateLimitServiceClient
			for range tt.conns {
				clients = append(clients, ratelimitv3.NewRateLimitServiceClient(dial(t, s, creds)))
			}
			message := &ratelimitv3.RateLimitRequest{Domain: "edge"}
			for i := range tt.descriptors {
				message.Descriptors = append(message.Descriptors,
					descriptor(fmt.Sprintf("all=%d%s", i, strings.Repeat("x", tt.valueLen))))
			}
			var asking sync.WaitGroup
			for i := range tt.requests {
				asking.Go(func() {
					_, err := clients[i%len(clients)].ShouldRateLimit(t.Context(), message)
					if err != nil {
						t.Error(err)
					}
				})
			}
			eventually(t, "requests wait for memory", s.IsAwaited)
			time.Sleep(200 * time.Millisecond) // as on a busy machine
			close(b.gate)
			asking.Wait()
		})
	}
}

// TestHeadersBeforeMessages sends the headers of many requests on several connections, and then
// their messages: more than there is memory for at once. All are executed in turn.
func TestHeadersBeforeMessages(t *testing.T) {
	s := serve(t, envoy.Options{Limits: listener.Limits{MaxMemory: 4 << 20,
		RequestTimeout: 20 * time.Second}})
	const conns, requests = 8, 8
	var clients []*raw
	for range conns {
		r := dialRaw(t, s, "127.0.0.1")
		r.readAnswers()
		for range requests {
			r.begin(decideMethod, 0)
		}
		clients = append(clients, r)
	}
	eventually(t, "requests wait for memory", s.IsAwaited)
	message := wide(t, 1, 10)
	for _, r := range clients {
		for i := range uint32(requests) {
			r.data(1+2*i, true, message)
		}
	}
	eventually(t, "all are answered", func() bool { return s.Answered() == conns*requests })
	eventually(t, "everything is returned", func() bool { return s.CallBytesInUse() == 0 })
}

var seed = flag.Uint64("seed", 0, "the seed of a random test; 0 means a new one")

// TestNothingIsChargedForever performs random client actions on several connections: begin, send
// parts, finish, reset, hang up, read nothing. No address ever exceeds its share, and once all of
// them have gone, nothing is in use.
func TestNothingIsChargedForever(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed=%d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	s := serve(t, envoy.Options{Limits: listener.Limits{MaxMemory: 4 << 20,
		RequestTimeout: 200 * time.Millisecond}})
	message := wide(t, 8, 500)
	var conns []*raw
	for range 1500 {
		if len(conns) < 4 {
			conns = append(conns, dialRaw(t, s, "127.0.0.1"))
		}
		i := random.IntN(len(conns))
		r := conns[i]
		switch at := random.IntN(20); {
		case at < 9:
			method := []string{decideMethod, healthMethod, watchMethod, "/no/such"}[random.IntN(4)]
			id := r.begin(method, random.IntN(3)*random.IntN(8000))
			if end := random.IntN(len(message)); random.IntN(2) == 0 {
				r.data(id, false, message[:end])
				r.data(id, true, message[end:])
			}
		case at < 14 && r.stream > 0:
			r.data(1+2*uint32(random.IntN(int(r.stream/2))), random.IntN(2) == 0,
				message[:random.IntN(9)])
		case at < 18 && r.stream > 0:
			r.reset(1 + 2*uint32(random.IntN(int(r.stream/2))))
		case at == 19 || r.hasHungUp():
			r.nc.Close()
			conns = append(conns[:i], conns[i+1:]...)
		}
		if used := s.CallBytesInUse(); used > s.CallBytes()/2 {
			t.Fatalf("%d bytes are in use, one address may have %d", used, s.CallBytes()/2)
		}
	}
	for _, r := range conns {
		r.nc.Close()
	}
	eventually(t, "everything is returned", func() bool {
		return s.CallBytesInUse() == 0 && s.StreamBytesInUse() == 0 && s.Conns() == 0
	})
}
