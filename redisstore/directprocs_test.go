package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// BenchmarkDirectProcesses decides by two limits in as many processes as it says, which share one
// Redis: each has 64 callers that ask for one decision at a time, or 4 that ask for 50. Besides
// what BenchmarkDirect reports, it reports the 99th percentile of the time that a call takes.
func BenchmarkDirectProcesses(b *testing.B) {
	for _, keys := range []struct {
		name string
		of   func(int) decisions
	}{{"busy", busyKey}, {"zipf", zipfKeys}, {"distinct", distinctKeys}} {
		for _, processes := range []int{1, 2, 4, 8} {
			for _, batch := range []int{1, 50} {
				name := fmt.Sprintf("%s/%d/calls=%d", keys.name, processes, batch)
				b.Run(name, func(b *testing.B) {
					benchmarkProcesses(b, keys.of, processes, batch)
				})
			}
		}
	}
}

func benchmarkProcesses(b *testing.B, keys func(int) decisions, processes, batch int) {
	srv := redistest.Start(b)
	var all []*redisstore.Direct
	for i := range processes {
		store := open(b, redisstore.Options{URL: srv.URL(),
			Placement: twotier.Placement{Partitions: twotier.DefaultPartitions}})
		all = append(all, openDirect(b, redisstore.DirectOptions{Store: store,
			Writer: fmt.Sprint("w", i), Now: func() int64 { return time.Now().UnixMilli() }}))
	}
	acquire(b, all[0], check("warm", 1, 1000, 1))
	fill(b, all[0])
	callers := 64
	if batch > 1 {
		callers = 4
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var left atomic.Int64
	var times []time.Duration
	left.Store(int64(b.N))
	redis, ours := cpuOfRedis(b, srv), cpuOfOurs(b)
	b.ResetTimer()
	for i := range processes * callers {
		next, d := keys(i), all[i%processes]
		wg.Go(func() {
			ops, res := make([]twotier.Op, batch), make([]twotier.Result, batch)
			for j := range ops {
				ops[j] = newDecision()
			}
			var own []time.Duration
			for left.Add(-int64(batch)) >= 0 {
				for j := range ops {
					setDecision(&ops[j], next())
				}
				began := time.Now()
				if batch == 1 {
					res[0].Err = d.Do(context.Background(), &ops[0], &res[0])
				} else {
					d.DoAll(context.Background(), ops, res)
				}
				own = append(own, time.Since(began))
				for j := range res {
					if res[j].Err != nil {
						b.Error(res[j].Err)
						return
					}
				}
			}
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(times)
	if len(times) == 0 {
		return
	}
	b.ReportMetric((cpuOfRedis(b, srv)-redis)/float64(b.N), "redis-µs/op")
	b.ReportMetric((cpuOfOurs(b)-ours)/float64(b.N), "our-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
}
