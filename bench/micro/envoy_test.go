package micro_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/load"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

var ratelimit = flag.String("ratelimit", "",
	"version of github.com/envoyproxy/ratelimit that BenchmarkEnvoy compares with")

// BenchmarkEnvoy calls rate limit services for Envoy by gRPC: twotier's and, if a version is named,
// envoyproxy/ratelimit, which is then fetched and built. Each has a separate Redis, and both have
// the same rules. One operation is a run of -duration.
func BenchmarkEnvoy(b *testing.B) {
	env, dir := programs(b), b.TempDir()
	rules := filepath.Join(dir, "ratelimit", "config", "rules.yaml") // where the other looks for it
	const limit = "{domain: edge, descriptors: [{key: user, rate_limit: {unit: minute, " +
		"requests_per_unit: 1000000}}]}\n"
	must.Succeed(b, errors.Join(os.MkdirAll(filepath.Dir(rules), 0o755),
		os.WriteFile(rules, []byte(limit), 0o600)))
	b.Run("service=twotier", func(b *testing.B) {
		s := start(b, rival.Twotier("twotier", 1, rival.TwoTier, "--grpc", "127.0.0.1:0",
			"--rules", rules), env)
		benchmarkEnvoy(b, s, s.Servers[0].GRPC)
	})
	if *ratelimit == "" {
		return
	}
	build := exec.CommandContext(b.Context(), "go", "install",
		"github.com/envoyproxy/ratelimit/src/service_cmd@"+*ratelimit)
	build.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	b.Run("service=envoyproxy", func(b *testing.B) {
		s, addr := startRatelimit(b, dir)
		benchmarkEnvoy(b, s, addr)
	})
}

// startRatelimit starts the program in a directory over a new Redis, with a connection to it for
// each caller, and without statistics.
func startRatelimit(b *testing.B, dir string) (s *rival.Stand, grpcAddr string) {
	s, err := rival.Redis()
	must.Succeed(b, err)
	b.Cleanup(func() { _ = s.Close() })
	variables := []string{"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"LOG_LEVEL=warn", "USE_STATSD=false", "DISABLE_STATS=true", "REDIS_SOCKET_TYPE=tcp",
		"REDIS_URL=" + s.Redis.Addr, fmt.Sprint("REDIS_POOL_SIZE=", envoyCallers),
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false"}
	for _, name := range []string{"PORT", "DEBUG_PORT", "GRPC_PORT"} {
		if grpcAddr, err = proc.FreeAddr(); err != nil {
			b.Fatal(err)
		}
		variables = append(variables, name+"="+grpcAddr[len("127.0.0.1:"):])
	}
	p, _, err := proc.Start("Listening for HTTP on", "env",
		append(variables, filepath.Join(dir, "service_cmd"))...)
	must.Succeed(b, err)
	s.OnClose(p.Stop)
	s.Servers = []*proc.Server{{Process: p}}
	return s, grpcAddr
}

// envoyCallers is the number of concurrent calls, over an eighth as many connections.
const envoyCallers = 64

// benchmarkEnvoy sends one descriptor of a million in each call, by Zipf.
func benchmarkEnvoy(b *testing.B, s *rival.Stand, addr string) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Duration(b.N)**duration+time.Minute)
	defer cancel()
	var workers []load.Worker
	var client ratelimitv3.RateLimitServiceClient
	for w := range envoyCallers {
		if w%8 == 0 {
			conn, err := grpc.NewClient(addr,
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
			must.Succeed(b, err)
			b.Cleanup(func() { _ = conn.Close() })
			client = ratelimitv3.NewRateLimitServiceClient(conn)
		}
		workers = append(workers, envoyCaller(ctx, client, uint64(w)))
		if err := workers[w].Do(); err != nil { // the other reports before it listens
			b.Fatal(err)
		}
	}
	before, err := s.Usage(b.Context())
	must.Succeed(b, err)
	t := load.Loop{Duration: time.Duration(b.N) * *duration}.Run(ctx, workers)
	err = s.Drain(ctx)
	after, err2 := s.Usage(b.Context())
	must.Succeed(b, errors.Join(t.Err(), err, err2))
	used, calls := after.Since(before), float64(t.Calls)
	b.ReportMetric(t.CallsPerSecond, "calls/s")
	b.ReportMetric(used.Service*1e6/calls, "service-us/call")
	b.ReportMetric(used.Redis.CPU*1e6/calls, "redis-us/call")
	b.ReportMetric(float64(t.Latency.P50), "p50-us")
	b.ReportMetric(float64(t.Latency.P99), "p99-us")
	reportShare(b, used)
}

func envoyCaller(ctx context.Context, client ratelimitv3.RateLimitServiceClient,
	seed uint64) load.Worker {
	rng := rand.New(rand.NewPCG(seed, 1))
	keys, _ := load.Keys("zipf", rng, 1_000_000, nil) // "zipf" exists
	user := &commonv3.RateLimitDescriptor_Entry{Key: "user"}
	request := &ratelimitv3.RateLimitRequest{Domain: "edge",
		Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{user}}}}
	return load.Worker{
		Next: func() (time.Duration, bool) {
			user.Value = drive.Key(keys())
			return 0, true
		},
		Do: func() error {
			answer, err := client.ShouldRateLimit(ctx, request)
			if err == nil && answer.OverallCode != ratelimitv3.RateLimitResponse_OK {
				err = fmt.Errorf("it answers %v", answer.OverallCode)
			}
			return err
		},
	}
}
