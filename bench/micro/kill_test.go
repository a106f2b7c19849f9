package micro_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// A setting is a choice of durability, with its guarantee: the largest part of the stream that is
// lost.
type setting struct {
	name            string
	interval, bound time.Duration
	flags           []string
}

// settings returns all settings. Intervals are jittered by a tenth; rounds in flight to Redis at
// the kill add to the loss.
func settings() (all []setting) {
	for _, d := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		name := fmt.Sprintf("ack=memory,flush=%v", d)
		all = append(all, setting{name, d, d, []string{"--ack", "memory"}})
	}
	return append(all,
		setting{"ack=redis", 200 * time.Millisecond, 0, []string{"--ack", "redis"}},
		setting{"mode=redis", 0, 0, []string{"--mode", "redis"}})
}

// BenchmarkKill kills a server while adds arrive, with every setting, and reports how many
// acknowledged adds are not in Redis. More adds may be stored than acknowledged, because the
// answers to some did not arrive. One operation is one kill; every run has one.
func BenchmarkKill(b *testing.B) {
	env := programs(b)
	for _, set := range settings() {
		b.Run("setting="+set.name, func(b *testing.B) {
			env.Flush = set.interval
			s := start(b, rival.Twotier("twotier", 1, rival.TwoTier, set.flags...), env)
			acknowledged, stored := kill(b, s)
			lost := max(acknowledged-stored, 0)
			b.ReportMetric(float64(acknowledged), "acknowledged")
			b.ReportMetric(float64(stored), "stored")
			b.ReportMetric(float64(lost), "lost")
			b.ReportMetric(float64(lost) / *rate * 1e3, "lost-ms")
			b.ReportMetric(float64(set.bound.Milliseconds()), "bound-ms")
			if set.bound == 0 && lost > 0 {
				b.Errorf("%d adds were acknowledged and not stored", lost)
			}
		})
	}
}

// kill sends adds, kills the server while they arrive, the duration after the first answer, and
// returns the number of adds that succeeded and of adds in Redis.
func kill(b *testing.B, s *rival.Stand) (acknowledged, stored int64) {
	const keys = 500
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	victim := &victim{Limiter: s, kill: func() {
		s.Servers[0].Kill()
		time.AfterFunc(time.Second, cancel)
	}}
	d, err := drive.New(victim, drive.Options{Workload: "uniform", Adds: true, Batch: 20,
		Keys: keys, Workers: 16, Rate: *rate, Duration: time.Minute})
	must.Succeed(b, err)
	r, _ := d.Run(ctx)
	if r.Errors == 0 {
		b.Fatal("the server survived")
	}
	direct, err := s.OpenDirect(b.Context())
	must.Succeed(b, err)
	for key := range keys {
		n, _ := do(b, direct, twotier.Count, drive.Key(uint64(key)), 1, 0)
		stored += n
	}
	return r.Decisions, stored
}

// victim is a server that is killed the duration after its first answer, so that a busy machine
// does not kill it before that.
type victim struct {
	limiter.Limiter
	answered sync.Once
	kill     func()
}

func (v *victim) Decide(ctx context.Context, calls []limiter.Call) (int, error) {
	admitted, err := v.Limiter.Decide(ctx, calls)
	if err == nil {
		v.answered.Do(func() { time.AfterFunc(*duration, v.kill) })
	}
	return admitted, err
}

// doer is a counter in memory, or in Redis.
type doer interface {
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
}

// do executes an operation on one key with a window of an hour and the given limit. It returns the
// count afterwards and whether it was allowed.
func do(b *testing.B, d doer, kind twotier.Kind, key string, n, limit int64) (count int64,
	ok bool) {
	check := twotier.Check{Key: []byte(key), N: n}
	if kind != twotier.Add {
		check.Limits = []twotier.Limit{{Window: hour, Max: limit}}
	}
	op := twotier.Op{Kind: kind, AllowNonOwner: true, Checks: []twotier.Check{check}}
	var res twotier.Result
	if err := d.Do(context.Background(), &op, &res); err != nil {
		b.Error(err)
		return 0, false
	}
	if kind == twotier.Count {
		count = res.Checks[0].Limits[0].Hi
	}
	return count, res.Allowed
}
