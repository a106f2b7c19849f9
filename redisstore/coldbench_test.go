package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// BenchmarkColdFullKeys asks an empty counter, as after a restart, for keys that are at their
// limits and have every bucket of the default ladder: one key for each iteration, by 1,000 callers
// at once. Each must be refused, and none before it was read.
func BenchmarkColdFullKeys(b *testing.B) {
	srv := redistest.Start(b)
	s := open(b, redisstore.Options{URL: srv.URL(), Timeout: time.Second})
	now := time.Now().UnixMilli()
	patient := open(b, redisstore.Options{URL: srv.URL(), Timeout: time.Minute})
	begin(b, patient, b.N, now)
	fillFull(b, patient, b.N, now)
	c, err := syncer.New(syncer.Options{Store: s, MaxMemory: 8 << 30,
		Now: func() int64 { return now }})
	if err == nil {
		err = c.Open(b.Context())
	}
	must.Succeed(b, err)
	redisBefore, nodeBefore := redisTime(b, srv), nodeTime(b)
	var next, again atomic.Int64
	var callers sync.WaitGroup
	b.ResetTimer()
	for range 1000 {
		callers.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				for !refusedCold(b, c, i) {
					again.Add(1)
				}
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
	b.ReportMetric(float64(again.Load())/float64(b.N), "503s/key")
	b.ReportMetric((redisTime(b, srv)-redisBefore)*1e6/float64(b.N), "redis-µs/key")
	b.ReportMetric((nodeTime(b)-nodeBefore)*1e6/float64(b.N), "node-µs/key")
	if err := c.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

// refusedCold asks for a key as a client does, for 1.8 s, and reports whether it was refused.
func refusedCold(b *testing.B, c *syncer.Counter, i int64) bool {
	ctx, cancel := context.WithTimeout(b.Context(), 1800*time.Millisecond)
	defer cancel()
	op := twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{check(fmt.Sprint("full", i), 1, 86_000_000, 95)}}
	var res twotier.Result
	err := c.Do(ctx, &op, &res)
	if err == nil && (res.Allowed || res.Degraded) {
		b.Errorf("full%d: %+v", i, res)
	}
	return err == nil
}

// begin counts each key once, so that the store knows its partition.
func begin(b *testing.B, s *redisstore.Store, n int, now int64) {
	c, err := syncer.New(syncer.Options{Store: s, Now: func() int64 { return now }})
	if err == nil {
		err = c.Open(b.Context())
	}
	must.Succeed(b, err)
	for i := range n {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check(fmt.Sprint("full", 1+i),
			1)}}
		must.Succeed(b, c.Do(b.Context(), &op, new(twotier.Result)))
	}
	must.Succeed(b, c.Close(context.Background()))
}

// fillFull writes keys with an event in every bucket of the default ladder.
func fillFull(b *testing.B, s *redisstore.Store, n int, now int64) {
	var cells []syncer.Bucket
	for _, l := range leaparray.DefaultLevels() {
		width := l.Width.Milliseconds()
		for j := range int64(l.Count) {
			at := leaparray.Stretch{Start: now - now%width - j*width, Width: width}
			cells = append(cells, syncer.Bucket{Stretch: at, N: 1})
		}
	}
	fields := redisstore.Fields(cells...)
	for i := 0; i < n; {
		pipe := s.Client().Pipeline()
		for range 200 {
			i++
			pipe.HSet(b.Context(), s.Address(fmt.Sprint("full", i)), fields...)
		}
		if _, err := pipe.Exec(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

var listedKeys = flag.Int("listed", 100_000, "keys that BenchmarkNewOwner fills Redis with")

// BenchmarkNewOwner measures the cost in Redis of one of ten nodes that joins, leaves or dies: a
// tenth of the partitions have a new owner, which learns the store's keys. One operation is all of
// that.
//
//	go test ./redisstore -run xxx -bench NewOwner -benchtime 1x -listed 10000000
func BenchmarkNewOwner(b *testing.B) {
	srv := redistest.Start(b)
	s := open(b, redisstore.Options{URL: srv.URL(), Timeout: time.Minute})
	u := &usage{b, srv}
	for seq := 1; b.Loop(); seq++ {
		u.report("fill", *listedKeys, func() { fillListed(b, s, seq) })
		u.report("lists", twotier.DefaultPartitions/10, func() { listTenth(b, s) })
		u.report("owner", twotier.DefaultPartitions/10, func() { ownTenth(b, s) })
	}
	b.ReportMetric(0, "ns/op")
}

// usage reports the cost of something in Redis.
type usage struct {
	b   *testing.B
	srv *redistest.Server
}

// report calls fn, and logs its cost, in total and for each of n.
func (u *usage) report(name string, n int, fn func()) {
	before, cpu, begun := info(u.b, u.srv), redisTime(u.b, u.srv), time.Now()
	fn()
	took, after := time.Since(begun), info(u.b, u.srv)
	cpu = redisTime(u.b, u.srv) - cpu
	more := func(field string) float64 { return after(field) - before(field) }
	u.b.Logf("%s: %.3f s of Redis's time (%.2f µs each), %.1f s in all, %.0f commands, "+
		"%.1f MB in, %.1f MB out, memory %+.1f MB", name, cpu, cpu*1e6/float64(n), took.Seconds(),
		more("total_commands_processed"), more("total_net_input_bytes")/1e6,
		more("total_net_output_bytes")/1e6, more("used_memory")/1e6)
	u.b.ReportMetric(cpu*1e3, name+"-redis-ms")
}

// fillListed fills Redis with keys, the same number in each partition.
func fillListed(b *testing.B, s *redisstore.Store, seq int) {
	const parts, most = twotier.DefaultPartitions, 128
	for from, round := 0, uint64(seq)<<32; from < *listedKeys; round++ {
		rounds := make([]*syncer.Round, 0, parts)
		for p := 0; p < parts && from < *listedKeys; p++ {
			r := &syncer.Round{Partition: p, Writer: "fill", Seq: round + 1}
			for range min(most, *listedKeys-from) {
				r.Keys = append(r.Keys, syncer.KeyRound{Key: fmt.Appendf(nil, "user:%d", from),
					TTL: 172_800_000, Renew: true, New: true,
					Adds: []syncer.Bucket{counts(second, 1)}})
				from++
			}
			rounds = append(rounds, r)
		}
		for at := 0; at < len(rounds); at += 64 {
			s.Exchange(context.Background(), rounds[at:min(at+64, len(rounds))])
		}
		must.Succeed(b, rounds[0].Err)
	}
}

// listTenth reads the lists of a tenth of the partitions, as fast as it can.
func listTenth(b *testing.B, s *redisstore.Store) {
	for p := range twotier.DefaultPartitions / 10 {
		l := &syncer.KeyList{Partition: p, More: true}
		for l.More {
			if s.ListKeys(context.Background(), []*syncer.KeyList{l}); l.Err != nil {
				b.Fatal(l.Err)
			}
		}
	}
}

// ownTenth makes a counter the owner of a tenth of the partitions, and acquires new keys in all of
// them until no more need to be read. It logs the time that takes, and the number of reads.
func ownTenth(b *testing.B, s *redisstore.Store) {
	const parts = twotier.DefaultPartitions / 10
	c, err := syncer.New(syncer.Options{Store: s, NotOwner: true, Placement: s.Placement()})
	must.Succeed(b, err)
	must.Succeed(b, c.Open(b.Context()))
	defer func() { _ = c.Close(b.Context()) }()
	for p := range parts {
		c.StartOwning(p)
	}
	begun, place, read := time.Now(), s.Placement(), int64(-1)
	for i := 0; c.Stats().LoadsTotal != read; {
		read = c.Stats().LoadsTotal
		ops, res := newKeysIn(place, parts, &i)
		c.DoAll(b.Context(), ops, res)
	}
	b.Logf("owner: %v until new keys cost no read; %d were read, %d not, %d hashes, %d bytes",
		time.Since(begun), read, c.Stats().UnreadTotal, c.Stats().ListedKeys,
		c.Stats().MemoryBytes)
}

// newKeysIn returns an acquire of a new key in each of the first partitions.
func newKeysIn(place twotier.Placement, parts int, i *int) ([]twotier.Op, []twotier.Result) {
	ops := make([]twotier.Op, parts)
	for left := parts; left > 0; *i++ {
		key := fmt.Appendf(nil, "new:%d", *i)
		if p := place.Of(nil, key); p < parts && ops[p].Checks == nil {
			ops[p] = twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: key, N: 1,
				Limits: []twotier.Limit{{Window: 60_000, Max: 10}}}}}
			left--
		}
	}
	return ops, make([]twotier.Result, parts)
}
