package micro_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/load"
	"twotier.dev/twotier/bench/rival"
)

// BenchmarkQuietFlush measures the effect of the flush on requests: acquires one by one at half of
// the highest rate of the server with Redis, without Redis and with it in turn. The keys are known,
// or each is new, which makes for the largest possible flush.
func BenchmarkQuietFlush(b *testing.B) {
	env := programs(b)
	memory := start(b, rival.Twotier("memory", 1, rival.Memory), env)
	redis := start(b, rival.Twotier("redis", 1, rival.TwoTier), env)
	for _, dist := range []string{"uniform", "distinct"} {
		b.Run("keys="+dist, func(b *testing.B) {
			o := drive.Options{Workload: dist, Keys: 100_000}
			o.Rate = generate(b, redis, o).PerSecond / 2
			o.Seed = 2
			without := generate(b, memory, o)
			watching, stop := context.WithCancel(b.Context())
			busiest := make(chan float64, 1)
			go func() { busiest <- watchBursts(watching, redis.RDB) }()
			with := generate(b, redis, o)
			stop()
			b.ReportMetric(o.Rate, "acquires/s")
			b.ReportMetric(<-busiest, "busiest-tenth")
			for name, r := range map[string]*rival.Run{"without": without, "with": with} {
				b.ReportMetric(float64(r.Latency.P50), name+"-p50-us")
				b.ReportMetric(float64(r.Latency.P99), name+"-p99-us")
				b.ReportMetric(float64(r.Latency.P999), name+"-p999-us")
			}
			reportShare(b, with.Usage)
			ratio := float64(with.Latency.P99) / float64(max(without.Latency.P99, 1))
			b.ReportMetric(ratio, "p99-ratio")
			b.ReportMetric(float64(with.Unsent+without.Unsent), "unsent")
		})
	}
}

// watchBursts reads ten times in a flush interval how much Redis has received, until ctx is done.
// It returns the amount in the busiest tenth, relative to the mean: 1 if all tenths were equal, and
// 10 if everything came at once.
func watchBursts(ctx context.Context, rdb *redis.Client) float64 {
	const slice = 20 * time.Millisecond
	var received []float64
	for last := 0.0; load.Sleep(ctx, slice) == nil; {
		info, err := rdb.InfoMap(ctx, "stats").Result()
		if err != nil {
			break
		}
		now, _ := strconv.ParseFloat(info["Stats"]["total_net_input_bytes"], 64)
		if last > 0 {
			received = append(received, now-last)
		}
		last = now
	}
	slices.Sort(received)
	sum := func(of []float64) (n float64) {
		for _, v := range of {
			n += v
		}
		return n
	}
	tenth := received[len(received)-(len(received)+9)/10:]
	return 10 * sum(tenth) / max(sum(received), 1)
}
