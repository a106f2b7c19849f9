package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// redisTime returns the processor time that Redis has used, in seconds; nodeTime returns this
// process's.
func redisTime(b *testing.B, srv *redistest.Server) (seconds float64) {
	info, err := srv.Do("INFO", "cpu").Text()
	must.Succeed(b, err)
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(text, 64)
			must.Succeed(b, err)
			seconds += n
		}
	}
	return seconds
}

func nodeTime(b *testing.B) float64 {
	var use syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
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
