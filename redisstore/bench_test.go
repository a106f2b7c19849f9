package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// BenchmarkFlush flushes one event of each of many keys, in rounds as a counter cuts them. The keys
// are new and known to be new; new, but read because that is not known; known; or known but read.
// redis-µs/key is the processor time of Redis.
func BenchmarkFlush(b *testing.B) {
	for _, kind := range []string{"new", "unread", "known", "cold"} {
		for _, each := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind, each), func(b *testing.B) {
				benchmarkFlush(b, kind, each)
			})
		}
	}
}

// benchmarkFlush flushes rounds of the given number of keys. One operation flushes about 512 keys.
func benchmarkFlush(b *testing.B, kind string, each int) {
	srv := redistest.Start(b)
	s := open(b, redisstore.Options{URL: srv.URL(),
		Expiry: redisstore.Expiry(redistest.Expiry(b, srv))})
	l := defaultLadder(b)
	rounds := make([]*syncer.Round, 512/each)
	for p := range rounds {
		rounds[p] = &syncer.Round{Partition: p, Writer: "w", Keys: make([]syncer.KeyRound, each)}
	}
	cpu, memory, history := 0.0, 0.0, content{}
	for n := 0; b.Loop(); n++ {
		if n == 1 {
			cpu, memory = redisTime(b, srv), info(b, srv)("used_memory")
		}
		known := kind == "known" || kind == "cold"
		folds := n%32 == 31
		history.count(leaparray.Moment(t0+int64(n)*1000), l, known && folds)
		all := history.buckets()
		slices.SortFunc(all, syncer.Bucket.Compare)
		for p, r := range rounds {
			r.Seq, r.Now = r.Seq+1, t0+int64(n)*1000
			for i := range r.Keys {
				nextEvent(&r.Keys[i], kind, p*each+i, n)
				if k := &r.Keys[i]; kind == "known" {
					k.Content, k.Rewrite, k.ContentLog = all, folds || n == 0, 0
					if k.Rewrite {
						k.ContentLog = syncer.WholeLog
					}
				}
			}
		}
		s.Exchange(context.Background(), rounds)
		for _, r := range rounds {
			if r.Err != nil || r.Lost {
				b.Fatal(r.Err, r.Lost)
			}
			r.Acked = r.Seq
		}
	}
	keys := float64(b.N-1) * float64(len(rounds)*each)
	b.ReportMetric((redisTime(b, srv)-cpu)*1e6/keys, "redis-µs/key")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/keys, "µs/key")
	if kind == "new" || kind == "unread" {
		b.ReportMetric((info(b, srv)("used_memory")-memory)/keys, "redis-B/key")
	}
	b.ReportMetric(0, "ns/op")
}

// count counts an event of a key, which may fold, as each of the known keys does.
func (c content) count(at leaparray.Stretch, l *leaparray.Ladder, folds bool) {
	if c[at]++; folds {
		c.fold(l, at.Start, at.Start-63_000)
	}
}

// nextEvent prepares the n-th flush of the i-th key, which counts one event in the n-th second.
func nextEvent(k *syncer.KeyRound, kind string, i, n int) {
	isNew := kind == "new" || kind == "unread"
	if isNew || n == 0 {
		*k = syncer.KeyRound{Key: fmt.Appendf(nil, "user:%d:%d", n, i), TTL: 172_800_000,
			New: kind == "new"}
	}
	k.Load = kind == "unread" || kind == "cold"
	k.Adds = append(k.Adds[:0], counts(leaparray.Moment(t0+int64(n)*1000), 1))
}

// BenchmarkLoad loads one key of each of many partitions, like a counter whose callers ask for keys
// outside its memory.
func BenchmarkLoad(b *testing.B) {
	srv := redistest.Start(b)
	s := open(b, redisstore.Options{URL: srv.URL()})
	const partitions = 64
	rounds := make([]*syncer.Round, partitions)
	for p := range rounds {
		rounds[p] = &syncer.Round{Partition: p, Writer: "w", Seq: 1,
			Keys: []syncer.KeyRound{{Key: []byte("user"), TTL: 172_800_000, Adds: []syncer.Bucket{
				counts(leaparray.Moment(t0), 1), counts(leaparray.Moment(t0+1), 1),
				counts(second, 1)}}}}
	}
	s.Exchange(context.Background(), rounds)
	for _, r := range rounds {
		r.Seq, r.ReadOnly, r.Keys[0] = 0, true, syncer.KeyRound{Key: r.Keys[0].Key, Load: true}
	}
	before := redisTime(b, srv)
	for b.Loop() {
		s.Exchange(context.Background(), rounds)
		for _, r := range rounds {
			if r.Err != nil || r.Lost || len(r.Keys[0].Loaded) != 3 {
				b.Fatal(r.Err, r.Lost, r.Keys[0].Loaded)
			}
		}
	}
	keys := float64(b.N) * partitions
	b.ReportMetric((redisTime(b, srv)-before)*1e6/keys, "redis-µs/key")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/keys, "µs/key")
	b.ReportMetric(0, "ns/op")
}

// info returns the numbers of a server's INFO, by name.
func info(b *testing.B, srv *redistest.Server) (of func(name string) float64) {
	b.Helper()
	text, err := srv.Do("INFO").Text()
	must.Succeed(b, err)
	return func(name string) float64 {
		_, rest, _ := strings.Cut(text, "\n"+name+":")
		digits, _, _ := strings.Cut(rest, "\r")
		v, _ := strconv.ParseFloat(digits, 64)
		return v
	}
}

// redisTime returns the processor time that a server has used, in seconds.
func redisTime(b *testing.B, srv *redistest.Server) float64 {
	of := info(b, srv)
	return of("used_cpu_user") + of("used_cpu_sys")
}

// nodeTime returns the processor time that this process has used, in seconds.
func nodeTime(b *testing.B) float64 {
	var use syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
}

// BenchmarkValuesBytes reports what keys cost in memory, and in Redis, that have so many different
// values over a day.
func BenchmarkValuesBytes(b *testing.B) {
	for _, n := range []int{1, 3, 30, 300, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server := redistest.Start(b)
			store := open(b, redisstore.Options{URL: server.URL(),
				Placement: twotier.Placement{Partitions: 1}})
			const keys = 200
			for b.Loop() {
				flushAll(b, server)
				c, err := syncer.New(syncer.Options{Store: store, Placement: store.Placement()})
				must.Succeed(b, err)
				must.Succeed(b, c.Open(b.Context()))
				before, now := c.Stats().MemoryBytes, time.Now().UnixMilli()
				var res twotier.Result
				for k := range keys {
					check := twotier.Check{Kind: twotier.ValuesCheck, N: 1}
					check.NS, check.Key = twotier.ValuesKey(nil, fmt.Append(nil, "key", k))
					for i := range n {
						check.Values = []uint64{companions.HashValue(0, fmt.Append(nil, i))}
						op := twotier.Op{TS: now - int64(n-i)*(86_400_000/int64(n)),
							Checks: []twotier.Check{check}}
						must.Succeed(b, c.Do(b.Context(), &op, &res))
					}
				}
				must.Succeed(b, c.Flush(b.Context()))
				b.ReportMetric(float64(c.Stats().MemoryBytes-before)/keys, "B/key")
				used := int64(0)
				for k := range keys {
					name := fmt.Sprintf("tt:{p0}:@values/default:/key%d", k)
					bytes, err := server.Do("MEMORY", "USAGE", name, "SAMPLES", "0").Int64()
					must.Succeed(b, err)
					used += bytes
				}
				b.ReportMetric(float64(used)/keys, "Redis-B/key")
				must.Succeed(b, c.Close(b.Context()))
			}
		})
	}
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
