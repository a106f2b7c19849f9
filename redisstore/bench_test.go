package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

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
	cpu, memory, history := 0.0, int64(0), content{}
	for n := 0; b.Loop(); n++ {
		if n == 1 {
			cpu, memory = usedCPU(b, srv), usedMemory(b, srv)
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
	b.ReportMetric((usedCPU(b, srv)-cpu)*1e6/keys, "redis-µs/key")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/keys, "µs/key")
	if kind == "new" || kind == "unread" {
		b.ReportMetric(float64(usedMemory(b, srv)-memory)/keys, "redis-B/key")
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
	before := usedCPU(b, srv)
	for b.Loop() {
		s.Exchange(context.Background(), rounds)
		for _, r := range rounds {
			if r.Err != nil || r.Lost || len(r.Keys[0].Loaded) != 3 {
				b.Fatal(r.Err, r.Lost, r.Keys[0].Loaded)
			}
		}
	}
	keys := float64(b.N) * partitions
	b.ReportMetric((usedCPU(b, srv)-before)*1e6/keys, "redis-µs/key")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/keys, "µs/key")
	b.ReportMetric(0, "ns/op")
}

// usedCPU returns the processor time that a server has used, in seconds.
func usedCPU(b *testing.B, srv *redistest.Server) (s float64) {
	info := srv.Do("INFO", "cpu").String()
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		s += v
	}
	return s
}

// usedMemory returns the memory that a server has allocated, in bytes.
func usedMemory(b *testing.B, srv *redistest.Server) int64 {
	info := srv.Do("INFO", "memory").String()
	m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(info)
	if m == nil {
		b.Fatal(info)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
