package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
)

// stepMeter reads the number of steps in the replies of scripts.
type stepMeter struct{ scripts, most atomic.Int64 }

func (m *stepMeter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

func (m *stepMeter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (m *stepMeter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, c := range cmds {
			script, ok := c.(*redis.Cmd)
			if reply, failed := script.Text(); ok && failed == nil && c.Name() == "evalsha" {
				m.scripts.Add(1)
				m.most.Store(max(m.most.Load(), redisstore.Steps(reply)))
			}
		}
		return err
	}
}

// fillKey gives a key all buckets of its ladder.
func fillKey(t testing.TB, srv *redistest.Server, s *redisstore.Store, l *leaparray.Ladder,
	key string) {
	t.Helper()
	for _, lv := range l.Levels() {
		fields, width := []any{"HSET", s.Address(key)}, lv.Width.Milliseconds()
		for i := range int64(lv.Count) {
			fields = append(fields, fieldAt(width, t0-i*width), 1+i%1000)
		}
		if err := srv.Do(fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// costly is a valid batch that takes Redis as long as possible.
type costly struct {
	ladder *leaparray.Ladder
	keys   int // with all buckets of the ladder
	ops    []twotier.Op
}

// costlyBatches returns the extremes of a valid request: late acquires, which must hold in every
// window around them, with as many limits as a check may have, over keys with all buckets of a
// ladder.
func costlyBatches(t testing.TB) map[string]costly {
	usual := ladderOf(t, leaparray.DefaultLevels()...)
	wide := ladderOf(t, leaparray.Level{Width: time.Second, Count: 3600},
		leaparray.Level{Width: time.Minute, Count: 1440})
	long := ladderOf(t, leaparray.Level{Width: time.Second, Count: leaparray.MaxBuckets})
	const most = 1 << 40
	acquire := func(keys int, late, window, limit int64) twotier.Op {
		op := twotier.Op{Kind: twotier.Acquire, TS: t0 - late}
		for i := range keys {
			c := check(fmt.Sprint("k", i), 1)
			for j := range int64(16) {
				c.Limits = append(c.Limits, twotier.Limit{Window: window + 1000*j, Max: limit})
			}
			op.Checks = append(op.Checks, c)
		}
		return op
	}
	batch := func(n int, op func(i int64) twotier.Op) (ops []twotier.Op) {
		for i := range int64(n) {
			ops = append(ops, op(i))
		}
		return ops
	}
	const day, half = 86_000_000, 1_700_000
	return map[string]costly{
		"late and refused": {usual, 1, batch(256, func(int64) twotier.Op {
			return acquire(1, day/2, day/2, 1)
		})},
		"late and counted": {usual, 1, batch(256, func(i int64) twotier.Op {
			return acquire(1, day/2-60_000*i, day/2, most)
		})},
		"late, of many keys": {usual, 64, batch(3, func(int64) twotier.Op {
			return acquire(64, day/2, day/2, most)
		})},
		"late, in a wide ladder": {wide, 1, batch(5, func(i int64) twotier.Op {
			return acquire(1, half-i, half, 1)
		})},
		"late, in a long level": {long, 1, batch(5, func(i int64) twotier.Op {
			return acquire(1, 2_020_000-i, 2_000_000, 1)
		})},
		"late, in short windows": {long, 1, batch(5, func(i int64) twotier.Op {
			return acquire(1, 4_000_000-i, 1, 1)
		})},
		"of many keys, in a wide ladder": {wide, 20, batch(1, func(int64) twotier.Op {
			return acquire(20, half, half, most)
		})},
		"with different limits": {wide, 1, batch(20, func(i int64) twotier.Op {
			return acquire(1, 0, half+i, 1)
		})},
		"compared adds": {wide, 1, batch(5, func(i int64) twotier.Op {
			op := acquire(1, i*1000, half, 1)
			op.Kind = twotier.Add
			return op
		})},
		"late adds": {wide, 1, batch(20, func(i int64) twotier.Op {
			return twotier.Op{TS: t0 - i*600_000, Checks: []twotier.Check{check("k0", 1)}}
		})},
		"taken back": {wide, 1, batch(20, func(int64) twotier.Op {
			return twotier.Op{Checks: []twotier.Check{check("k0", -1_000_000)}}
		})},
	}
}

// TestScriptsAreBounded carries out batches that take Redis as long as possible. No script takes
// more steps than allowed, plus the steps for one key with all its buckets.
func TestScriptsAreBounded(t *testing.T) {
	race.SkipLong(t)
	t.Parallel()
	for name, test := range costlyBatches(t) {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			s := open(t, redisstore.Options{URL: srv.URL(), Ladders: ladders(test.ladder)})
			d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
			add(t, d, "warm", 1, 0)
			for i := range test.keys {
				fillKey(t, srv, s, test.ladder, fmt.Sprint("k", i))
			}
			meter := &stepMeter{}
			s.Client().AddHook(meter)
			res := make([]twotier.Result, len(test.ops))
			d.DoAll(t.Context(), test.ops, res)
			for i := range res {
				if res[i].Err != nil {
					t.Fatalf("operation %d: %v", i, res[i].Err)
				}
			}
			t.Logf("%d scripts of up to %d steps", meter.scripts.Load(), meter.most.Load())
			oneKey := int64(60 * test.ladder.MaxCells())
			if most := meter.most.Load(); most > redisstore.MaxSteps+oneKey || most == 0 {
				t.Errorf("a script took %d steps, want at most %d and %d", most,
					redisstore.MaxSteps, oneKey)
			}
		})
	}
}

// TestReadsAreBounded counts keys with a wide ladder. One pipeline reads only a few of them.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	wide := ladderOf(t, leaparray.Level{Width: time.Second, Count: 3600},
		leaparray.Level{Width: time.Minute, Count: 1440})
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL(), Ladders: ladders(wide)})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 1})
	add(t, d, "warm", 1, 0)
	before := s.Health().RoundTrips
	ops, res := make([]twotier.Op, 24), make([]twotier.Result, 24)
	for i := range ops {
		ops[i] = twotier.Op{Kind: twotier.Count,
			Checks: []twotier.Check{check(fmt.Sprint("k", i), 0, 1000, 0)}}
	}
	d.DoAll(t.Context(), ops, res)
	if n := s.Health().RoundTrips - before; n < 8 {
		t.Errorf("24 keys took %d round trips, want one for at most three keys", n)
	}
}

// BenchmarkCostly carries out the same batches, and reports Redis's processor time for a script.
func BenchmarkCostly(b *testing.B) {
	for name, test := range costlyBatches(b) {
		b.Run(name, func(b *testing.B) {
			srv := redistest.Start(b)
			s := open(b, redisstore.Options{URL: srv.URL(), Ladders: ladders(test.ladder)})
			d := openDirect(b, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
			add(b, d, "warm", 1, 0)
			for i := range test.keys {
				fillKey(b, srv, s, test.ladder, fmt.Sprint("k", i))
			}
			meter := &stepMeter{}
			s.Client().AddHook(meter)
			res := make([]twotier.Result, len(test.ops))
			before := cpuOfRedis(b, srv)
			for b.Loop() {
				d.DoAll(b.Context(), test.ops, res)
			}
			spent := (cpuOfRedis(b, srv) - before) / 1000
			b.ReportMetric(spent/float64(meter.scripts.Load()), "redis-ms/script")
			b.ReportMetric(float64(meter.most.Load()), "most-steps")
		})
	}
}
