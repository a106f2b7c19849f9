package micro_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/load"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// intervals returns the compared flush intervals.
func intervals() []time.Duration {
	return []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond,
		time.Second}
}

// BenchmarkFlush measures the work that each flush interval leaves to Redis: a server makes
// decisions on a million keys (Zipf) at a fixed rate, in batches of 100.
func BenchmarkFlush(b *testing.B) {
	env := programs(b)
	for _, interval := range intervals() {
		env.Flush = interval
		b.Run(fmt.Sprintf("interval=%v", interval), func(b *testing.B) {
			s := start(b, rival.Twotier("twotier", 1, rival.TwoTier), env)
			r, err := s.Drive(b.Context(), drive.Options{Workload: "zipf", Batch: 100, Workers: 8,
				Rate: *rate, Duration: time.Duration(b.N) * *duration})
			must.Succeed(b, err)
			b.ReportMetric(r.Commands(), "commands/decision")
			b.ReportMetric(r.Scripts(), "calls/decision")
			b.ReportMetric(r.Per(r.Usage.Redis.CPU*1e6), "redis-us/decision")
			b.ReportMetric(r.Per(r.Usage.Service*1e6), "service-us/decision")
			b.ReportMetric(float64(r.Latency.P99), "p99-us")
			reportShare(b, r.Usage)
		})
	}
}

// BenchmarkSteady sends a steady stream of adds, each to a new key, the worst case for a counter
// that flushes in batches: the unacknowledged counts must stay below five seconds of the stream,
// and in the end Redis must have every key.
func BenchmarkSteady(b *testing.B) {
	s := start(b, rival.Twotier("twotier", 1, rival.TwoTier), programs(b))
	watching, stop := context.WithCancel(b.Context())
	pending := make(chan []float64, 1)
	go func() { pending <- watchPending(watching, s.Servers[0]) }()
	r := generate(b, s, drive.Options{Workload: "distinct", Adds: true, Batch: 500, Workers: 8,
		Rate: *rate})
	stop()
	if keys, err := s.RDB.DBSize(b.Context()).Result(); err != nil || keys < r.Decisions {
		b.Fatalf("%d adds to distinct keys, but Redis has %d, %v", r.Decisions, keys, err)
	}
	reportPending(b, <-pending, 5**rate)
	b.ReportMetric(r.Drained, "drained-s")
	b.ReportMetric(r.Per(r.Usage.Redis.CPU*1e6), "redis-us/add")
	b.ReportMetric(r.Scripts(), "calls/add")
	b.ReportMetric(r.Per(r.Usage.Service*1e6), "service-us/add")
	b.ReportMetric(r.PerSecond, "adds/s")
	b.ReportMetric(float64(r.Latency.P99)/1e3, "p99-ms")
	reportShare(b, r.Usage)
}

// watchPending returns the number of pending buckets once a second, until ctx is done.
func watchPending(ctx context.Context, s *proc.Server) (buckets []float64) {
	for load.Sleep(ctx, time.Second) == nil {
		if v, err := s.Metric(ctx, "twotier_pending_buckets"); err == nil {
			buckets = append(buckets, v)
		}
	}
	return buckets
}

// reportPending reports the mean and the maximum of the pending buckets, and their bound.
func reportPending(b *testing.B, buckets []float64, bound float64) {
	most, sum := 0.0, 0.0
	for _, n := range buckets {
		most = max(most, n)
		sum += n
	}
	b.ReportMetric(sum/float64(max(len(buckets), 1)), "pending-mean")
	b.ReportMetric(most, "pending-max")
	b.ReportMetric(bound, "pending-bound")
	if most > bound {
		b.Errorf("%.0f buckets were pending, more than the bound of %.0f", most, bound)
	}
}
