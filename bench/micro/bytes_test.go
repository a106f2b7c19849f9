package micro_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// The keys that BenchmarkBytes fills. They replace b.N, with which testing would fill keys several
// times, which takes long. The limiters in Redis get fewer: the bytes of a key don't depend on the
// number of keys, and logs that are read for every event take long to fill.
var (
	oneKeys    = flag.Int("one", 1000, "keys with one event")
	thirtyKeys = flag.Int("thirty", 1000, "keys with thirty events")
	everyKeys  = flag.Int("every", 100, "keys with every bucket live")
)

// BenchmarkBytes measures the memory of a key: in Redis, for twotier and for the limiters in Redis,
// and in twotier's own memory. One operation fills all keys, each with all its events.
func BenchmarkBytes(b *testing.B) {
	env := programs(b)
	rivals, err := rival.Select(rival.All(), limiter.ScriptNames())
	must.Succeed(b, err)
	for _, s := range shapes() {
		big := rival.Twotier("twotier", 1, rival.TwoTier, "--max-memory", "8GiB")
		for _, rv := range append([]rival.Rival{big}, rivals...) {
			keys := s.keys
			if rv.Name != big.Name {
				keys = min(keys, s.ofRivals)
			}
			name := fmt.Sprintf("events=%s/way=%s/keys=%d", s.name, rv.Name, keys)
			b.Run(name, func(b *testing.B) { benchmarkBytes(b, start(b, rv, env), keys, s.ages) })
		}
	}
}

// monthLadder is the default ladder, extended by 31 days of hours.
const monthLadder = "namespaces:\n  default: {ladder: [1s x 60, 1m x 60, 15m x 96, 1h x 744]}\n"

// BenchmarkMonthBytes measures the memory of a key on a ladder of 31 days, as BenchmarkBytes does:
// with one event, with thirty spread over the time, with one in every hour, and with one in every
// bucket.
func BenchmarkMonthBytes(b *testing.B) {
	env, config := programs(b), filepath.Join(b.TempDir(), "config.yaml")
	must.Succeed(b, os.WriteFile(config, []byte(monthLadder), 0o600))
	rv := rival.Twotier("twotier", 1, rival.TwoTier, "--max-memory", "8GiB", "--config", config)
	const reach = 31*24*time.Hour - 2*time.Hour
	var spread, hours []time.Duration
	for i := range 30 {
		spread = append(spread, reach*time.Duration(30-i)/30)
	}
	for i := range 742 {
		hours = append(hours, time.Duration(742-i)*time.Hour)
	}
	every := shapes()[2]
	all := append(slices.Clone(hours), every.ages...)
	slices.Sort(all)
	slices.Reverse(all)
	for _, s := range []shape{{"one", *oneKeys, 0, []time.Duration{0}},
		{"thirty", *thirtyKeys, 0, spread}, {"hours", *everyKeys, 0, hours},
		{"every", *everyKeys, 0, all}} {
		b.Run(fmt.Sprintf("events=%s/keys=%d", s.name, s.keys), func(b *testing.B) {
			benchmarkBytes(b, start(b, rv, env), s.keys, s.ages)
		})
	}
}

// A shape determines the times of a key's events.
type shape struct {
	name           string
	keys, ofRivals int
	ages           []time.Duration // before now, the oldest first
}

// shapes returns one event, thirty spread over a day, and one in every bucket. A day is somewhat
// shorter, so that filling may take a while.
func shapes() []shape {
	const reach = 24*time.Hour - 20*time.Minute
	var spread, all []time.Duration
	for i := range 30 {
		spread = append(spread, reach*time.Duration(30-i)/30)
	}
	for _, level := range []struct {
		width time.Duration
		count int
	}{{15 * time.Minute, 95}, {time.Minute, 60}, {time.Second, 60}} {
		for i := range level.count {
			all = append(all, min(level.width*time.Duration(i), reach))
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return []shape{{"one", *oneKeys, 200_000, []time.Duration{0}},
		{"thirty", *thirtyKeys, 20_000, spread}, {"every", *everyKeys, 1000, all}}
}

// A population is a set of keys that all have events at the same times.
type population struct {
	stand *rival.Stand
	ages  []time.Duration
	// keys is the number of keys, first the number of the first.
	keys  int
	first uint64
}

func benchmarkBytes(b *testing.B, s *rival.Stand, keys int, ages []time.Duration) {
	// Make Redis and its connections allocate their fixed memory before anything is measured.
	warm := population{s, []time.Duration{0}, fillers * pipelined, 1 << 40}
	p := population{s, ages, keys, 0}
	must.Succeed(b, warm.fill(b.Context()))
	before, err1 := s.Footprint(b.Context())
	first, err2 := s.RDB.DBSize(b.Context()).Result()
	filled := p.fill(b.Context())
	dropped := p.dropPassedWindows(b.Context(), time.Now().UnixMilli())
	after, err3 := s.Footprint(b.Context())
	last, err4 := s.RDB.DBSize(b.Context()).Result()
	must.Succeed(b, errors.Join(err1, err2, filled, dropped, err3, err4))
	m := after.Since(before)
	for unit, v := range map[string]int64{
		"events": int64(len(ages) * p.keys), "redis-B": m.Redis, "redis-keys": last - first,
		"counted-B": m.Counted, "resident-B": m.Service,
	} {
		b.ReportMetric(float64(v)/float64(p.keys), unit+"/key")
	}
}

const (
	fillers   = 8
	pipelined = 100
)

// fill counts the events, in the order of time for each key. It flushes pending counts before the
// next age: the replay is faster than the day was.
func (p population) fill(ctx context.Context) error {
	now := time.Now()
	for _, age := range p.ages {
		err := p.fillAt(ctx, now.Add(-age).UnixMilli())
		if err := errors.Join(err, p.stand.Drain(ctx), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// fillAt counts one event of each key.
func (p population) fillAt(ctx context.Context, ts int64) error {
	errs := make([]error, fillers)
	var wg sync.WaitGroup
	for w := range fillers {
		wg.Go(func() { errs[w] = p.fillShare(ctx, w, ts) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// key returns the name of one of the keys.
func (p population) key(i int) string { return drive.Key(p.first + uint64(i)) }

// fillShare adds, if there is a server. A limiter in Redis decides instead, with room for all
// events, for windows that reach back as far as twotier's ladder.
func (p population) fillShare(ctx context.Context, worker int, ts int64) error {
	limits := []limiter.Limit{{Window: 60_000, Max: 1 << 30}, {Window: hour, Max: 1 << 30},
		{Window: 24 * hour, Max: 1 << 30}}
	calls := make([]limiter.Call, 0, pipelined)
	for key := worker; key < p.keys; key += fillers {
		call := limiter.At(ts, limiter.One(p.key(key), limits))
		if len(p.stand.Servers) > 0 {
			call.Kind, call.Checks[0].Limits = twotier.Add, nil
		}
		calls = append(calls, call)
		if len(calls) < pipelined && key+fillers < p.keys {
			continue
		}
		if n, err := p.stand.Decide(ctx, calls); err != nil || n != len(calls) {
			return fmt.Errorf("%d of %d were admitted: %w", n, len(calls), err)
		}
		calls = calls[:0]
	}
	return nil
}

// dropPassedWindows deletes the counters of fixed windows that are over: "i:KEY:WINDOW:INDEX". They
// would have expired if the time between the events had really passed. All other limiters keep one
// key and drop expired data when they write.
func (p population) dropPassedWindows(ctx context.Context, now int64) error {
	keys := p.stand.RDB.Scan(ctx, 0, "i:*", 1000).Iterator()
	pipe := p.stand.RDB.Pipeline()
	for keys.Next(ctx) {
		parts := strings.Split(keys.Val(), ":")
		window, err1 := strconv.ParseInt(parts[len(parts)-2], 10, 64)
		index, err2 := strconv.ParseInt(parts[len(parts)-1], 10, 64)
		if errors.Join(err1, err2) == nil && (index+1)*window <= now {
			pipe.Del(ctx, keys.Val())
		}
	}
	_, err := pipe.Exec(ctx)
	return errors.Join(keys.Err(), err)
}
