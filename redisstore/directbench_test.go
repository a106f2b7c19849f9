package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// decisions draws the keys of one caller.
type decisions func() uint64

func distinctKeys(worker int) decisions {
	n := uint64(worker) << 40
	return func() uint64 { n++; return n }
}

func zipfKeys(worker int) decisions {
	return rand.NewZipf(rand.New(rand.NewPCG(uint64(worker), 1)), 1.1, 1, 999_999).Uint64
}

// busyKey always draws the same key, which has all possible buckets after fill.
func busyKey(int) decisions { return func() uint64 { return 0 } }

func fill(b *testing.B, d *redisstore.Direct) {
	b.Helper()
	op, res := twotier.Op{Checks: []twotier.Check{check("", 1)}}, twotier.Result{}
	setDecision(&op, 0)
	now := time.Now().UnixMilli()
	for ago := int64(0); ago < 86_000_000; {
		op.TS = now - ago
		must.Succeed(b, d.Do(context.Background(), &op, &res))
		switch {
		case ago < 60_000:
			ago += 1000
		case ago < 3_600_000:
			ago += 60_000
		default:
			ago += 900_000
		}
	}
}

func setDecision(op *twotier.Op, key uint64) {
	c := &op.Checks[0]
	c.Key = strconv.AppendUint(append(c.Key[:0], "user:"...), key, 10)
}

func newDecision() twotier.Op {
	return twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{check("", 1, 60_000, 15, 3_600_000, 50)}}
}

// BenchmarkDirect decides by two limits: over a million keys with a Zipf distribution, over keys
// that are all different, and over one key that has all its buckets. There is one caller, or 64, or
// 8 with many decisions each.
func BenchmarkDirect(b *testing.B) {
	for _, ask := range []struct {
		name string
		load
	}{{"alone", load{1, 1, 1}}, {"single", load{1, 64, 1}}, {"batched", load{1, 8, 200}}} {
		ask.run(b, ask.name)
	}
}

// BenchmarkDirectProcesses decides by two limits in as many processes as it says, which share one
// Redis: each has 64 callers that ask for one decision at a time, or 4 that ask for 50.
func BenchmarkDirectProcesses(b *testing.B) {
	for _, processes := range []int{1, 2, 4, 8} {
		load{processes, 64, 1}.run(b, fmt.Sprint(processes, "/calls=1"))
		load{processes, 4, 50}.run(b, fmt.Sprint(processes, "/calls=50"))
	}
}

// load is some processes, the callers of each, and how many decisions one asks for at a time.
type load struct{ processes, callers, batch int }

func (l load) run(b *testing.B, name string) {
	for of, keys := range map[string]func(int) decisions{
		"zipf": zipfKeys, "distinct": distinctKeys, "busy": busyKey} {
		b.Run(of+"/"+name, func(b *testing.B) { l.decide(b, keys) })
	}
}

// decide asks for b.N decisions. It reports the processor time of one in Redis and in this process,
// in microseconds, which is meaningful even on a machine with other work, and the 99th percentile
// of the time that a call takes.
func (l load) decide(b *testing.B, keys func(int) decisions) {
	srv := redistest.Start(b)
	var all []*redisstore.Direct
	for i := range l.processes {
		store := open(b, redisstore.Options{URL: srv.URL(),
			Placement: twotier.Placement{Partitions: twotier.DefaultPartitions}})
		all = append(all, openDirect(b, redisstore.DirectOptions{Store: store,
			Writer: fmt.Sprint("w", i), Now: func() int64 { return time.Now().UnixMilli() }}))
	}
	fill(b, all[0])
	var wg sync.WaitGroup
	var mu sync.Mutex
	var left atomic.Int64
	var times []time.Duration
	left.Store(int64(b.N))
	b.ReportAllocs()
	redis, ours := redisTime(b, srv), nodeTime(b)
	b.ResetTimer()
	for i := range l.processes * l.callers {
		wg.Go(func() {
			own := l.ask(b, all[i%l.processes], keys(i), &left)
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric((redisTime(b, srv)-redis)*1e6/float64(b.N), "redis-µs/op")
	b.ReportMetric((nodeTime(b)-ours)*1e6/float64(b.N), "our-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
}

// ask asks until no decision is left, and returns how long each call took.
func (l load) ask(b *testing.B, d *redisstore.Direct, next decisions,
	left *atomic.Int64) (times []time.Duration) {
	batch := int64(l.batch)
	ops, res := make([]twotier.Op, batch), make([]twotier.Result, batch)
	for i := range ops {
		ops[i] = newDecision()
	}
	for n := left.Add(-batch); n > -batch; n = left.Add(-batch) {
		these := ops[:min(batch, n+batch)]
		for i := range these {
			setDecision(&these[i], next())
		}
		began := time.Now()
		if batch == 1 {
			res[0].Err = d.Do(context.Background(), &ops[0], &res[0])
		} else {
			d.DoAll(context.Background(), these, res[:len(these)])
		}
		times = append(times, time.Since(began))
		for i := range these {
			if res[i].Err != nil {
				b.Error(res[i].Err)
				return times
			}
		}
	}
	return times
}
