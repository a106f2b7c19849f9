package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// cpuOfRedis returns the processor time that a server has used, in microseconds.
func cpuOfRedis(b *testing.B, srv *redistest.Server) (us float64) {
	b.Helper()
	info, err := srv.Do("INFO", "cpu").Text()
	must.Succeed(b, err)
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`).FindAllStringSubmatch(
		info, -1) {
		s, err := strconv.ParseFloat(m[1], 64)
		must.Succeed(b, err)
		us += s * 1e6
	}
	return us
}

// cpuOfOurs returns the processor time that this process has used, in microseconds.
func cpuOfOurs(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

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

func askAlone(b *testing.B, d *redisstore.Direct, keys func(int) decisions) {
	askSingly(b, d, keys, 1)
}

func askAtOnce(b *testing.B, d *redisstore.Direct, keys func(int) decisions) {
	askSingly(b, d, keys, 64)
}

// askSingly runs callers that ask for one decision at a time.
func askSingly(b *testing.B, d *redisstore.Direct, keys func(int) decisions, callers int) {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for worker := range callers {
		next := keys(worker)
		wg.Go(func() {
			op, res := newDecision(), twotier.Result{}
			for left.Add(-1) >= 0 {
				setDecision(&op, next())
				if err := d.Do(context.Background(), &op, &res); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// askTogether runs 8 callers that ask for 200 decisions at a time.
func askTogether(b *testing.B, d *redisstore.Direct, keys func(int) decisions) {
	const batch = 200
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for worker := range 8 {
		next := keys(worker)
		wg.Go(func() {
			ops, res := make([]twotier.Op, batch), make([]twotier.Result, batch)
			for i := range ops {
				ops[i] = newDecision()
			}
			for n := left.Add(-batch); n > -batch; n = left.Add(-batch) {
				these := ops[:min(batch, n+batch)]
				for i := range these {
					setDecision(&these[i], next())
				}
				d.DoAll(context.Background(), these, res[:len(these)])
				for i := range these {
					if res[i].Err != nil {
						b.Error(res[i].Err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkDirect decides by two limits: over a million keys with a Zipf distribution, over keys
// that are all different, and over one key that has all its buckets. There is one caller, or 64, or
// 8 with many decisions each. It also reports the processor time of a decision in Redis and in this
// process, in microseconds, which is meaningful even on a machine with other work.
func BenchmarkDirect(b *testing.B) {
	for _, keys := range []struct {
		name string
		of   func(int) decisions
	}{{"zipf", zipfKeys}, {"distinct", distinctKeys}, {"busy", busyKey}} {
		for _, ask := range []struct {
			name string
			do   func(*testing.B, *redisstore.Direct, func(int) decisions)
		}{{"alone", askAlone}, {"single", askAtOnce}, {"batched", askTogether}} {
			b.Run(keys.name+"/"+ask.name, func(b *testing.B) {
				srv := redistest.Start(b)
				store := open(b, redisstore.Options{URL: srv.URL(),
					Placement: twotier.Placement{Partitions: twotier.DefaultPartitions}})
				d := openDirect(b, redisstore.DirectOptions{Store: store,
					Now: func() int64 { return time.Now().UnixMilli() }})
				acquire(b, d, check("warm", 1, 1000, 1))
				if keys.name == "busy" {
					fill(b, d)
				}
				b.ReportAllocs()
				redis, ours := cpuOfRedis(b, srv), cpuOfOurs(b)
				b.ResetTimer()
				ask.do(b, d, keys.of)
				b.StopTimer()
				b.ReportMetric((cpuOfRedis(b, srv)-redis)/float64(b.N), "redis-µs/op")
				b.ReportMetric((cpuOfOurs(b)-ours)/float64(b.N), "our-µs/op")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}

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
