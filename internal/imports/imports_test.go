package imports_test

import (
	"cmp"
	"context"
	"flag"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/internal/imports"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
)

var seeds = flag.Uint64("seeds", 60, "number of seeds of TestMissing to run")

func parse(t *testing.T, text string) *imports.Pattern {
	t.Helper()
	p, err := imports.ParsePattern(text)
	must.Succeed(t, err)
	return p
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct{ pattern, as, key, want, glob string }{
		{"rl:{key}", "{key}", "rl:a:b", "a:b", "rl:*"},
		{"limit:{key}:zset", "u/{key}", "limit:a:zset", "u/a", "limit:*:zset"},
		{"{tenant}:{user}", "{user}@{tenant}", "a:b", "b@a", "*:*"},
		{"d_{key}_{start}", "{key}", "d_a_1_1700000000", "a_1", "d_*_*"},
		{"d_{key}_{start}", "{key}", "d_a_b", "", "d_*_*"},
		{"{{{key}}}:z", "{{x}}{key}", "{a}:z", "{x}a", "{*}:z"},
		{"a*[b]?\\{key}", "{key}", "a*[b]?\\c", "c", `a\*\[b\]\?\\*`},
		{"rl:{key}", "{key}", "rl:", "", "rl:*"},
		{"rl:{key}", "{key}", "rl:a\nb", "a\nb", "rl:*"},
	} {
		p := parse(t, test.pattern)
		got, ok := p.Expand(test.key, parse(t, test.as))
		if ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s: %q gives %q, %v", test.pattern, test.key, got, ok)
		}
		if p.Glob() != test.glob {
			t.Errorf("%s: %s, want %s", test.pattern, p.Glob(), test.glob)
		}
	}
	for _, wrong := range []string{"{key", "key}", "{}", "{a b}", "{key}{key}"} {
		if _, err := imports.ParsePattern(wrong); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
	if name := parse(t, "{a}{b}").Unknown(parse(t, "{a}")); name != "b" {
		t.Errorf("%q is unknown", name)
	}
}

// TestMergedKeys finds the placeholder without which keys become one.
func TestMergedKeys(t *testing.T) {
	for _, test := range []struct{ pattern, as, want string }{
		{"{tenant}:{user}", "{user}", "tenant"}, {"{tenant}:{user}", "{user}@{tenant}", ""},
		{"rl:{key}:{start}", "{key}", ""}, {"rl:{key}:{index}", "all", "key"},
	} {
		if got := parse(t, test.pattern).Merges(parse(t, test.as)); got != test.want {
			t.Errorf("%s as %s: %q, want %q", test.pattern, test.as, got, test.want)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, test := range []struct {
		x    float64
		unit string
		want int64 // 0 for none
	}{
		{1700000000, "", 1700000000000}, {1700000000.123, "auto", 1700000000123},
		{1700000000123, "auto", 1700000000123}, {1700000000123456, "auto", 1700000000123},
		{1700000000123456789, "auto", 1700000000123}, {5, "auto", 0}, {-1, "auto", 0},
		{-5, "ms", 0}, {0, "s", 0}, {1e300, "s", 0}, {5, "s", 5000}, {1e10, "auto", 0},
		{1700000000123, "us", 1700000000},
	} {
		got, err := imports.Milliseconds(test.x, test.unit)
		if (err != nil) != (test.want == 0) || got != test.want {
			t.Errorf("%v %s: %d, %v, want %d", test.x, test.unit, got, err, test.want)
		}
	}
}

// TestMissing imports a log again and again while the limiter adds events and forgets its oldest,
// and imports end anywhere, with buckets of any width: in the end every event is counted once.
func TestMissing(t *testing.T) {
	first := seed.First()
	for n := first; n < first+*seeds; n++ {
		rng := rand.New(rand.NewPCG(n, 0))
		var log, marked []imports.Event
		now, window := int64(1_000_000), int64(20_000)
		for range 30 {
			now += rng.Int64N(4000)
			for range rng.IntN(4) {
				log = append(log, imports.Event{TS: now - rng.Int64N(100), N: 1 + rng.Int64N(3)})
			}
			slices.SortFunc(log, func(a, b imports.Event) int { return int(a.TS - b.TS) })
			source := imports.Merge(slices.DeleteFunc(slices.Clone(log),
				func(e imports.Event) bool { return e.TS <= now-window }))
			width := int64(4) << rng.IntN(8)
			got := imports.Missing(source, buckets(marked, width, now-window, now))
			leaves := len(source) > 0 && source[0].TS < now-window+5000
			if rng.IntN(3) == 0 && len(got) > 0 && !leaves {
				got = got[:rng.IntN(len(got))] // it is killed, and repeated before any leaves
			}
			marked = append(marked, got...)
		}
		if want, counted := sum(log), sum(marked); counted > want {
			t.Fatalf("TWOTIER_TEST_FIRST=%d: counted %d of %d events", n, counted, want)
		}
		source := imports.Merge(slices.DeleteFunc(slices.Clone(log),
			func(e imports.Event) bool { return e.TS <= now-window }))
		marked = append(marked, imports.Missing(source, buckets(marked, 1, now-window, now))...)
		if want, counted := sum(log), sum(marked); counted != want {
			t.Fatalf("TWOTIER_TEST_FIRST=%d: counted %d of %d events", n, counted, want)
		}
	}
}

// TestMissingWhereAnotherWasCounted imports after an import that counted an event for a late one
// that is older: the bucket with too many makes up for newer ones, too.
func TestMissingWhereAnotherWasCounted(t *testing.T) {
	source := []imports.Event{{TS: 93, N: 3}, {TS: 104, N: 3}, {TS: 136, N: 2}, {TS: 149, N: 1}}
	marked := []imports.Event{{TS: 93, N: 3}, {TS: 104, N: 6}}
	for _, width := range []int64{4, 16, 512} {
		if got := imports.Missing(source, buckets(marked, width, 0, 160)); len(got) > 0 {
			t.Errorf("in buckets of %d ms it lacks %v", width, got)
		}
	}
}

// buckets returns the sums of events from a time on.
func buckets(events []imports.Event, width, from, to int64) (list []imports.Bucket) {
	counts := map[int64]int64{}
	for _, e := range events {
		counts[e.TS/width] += e.N
	}
	for i := from / width; i <= to/width; i++ {
		list = append(list, imports.Bucket{Start: i * width, Width: width, N: counts[i]})
	}
	return list
}

func sum(events []imports.Event) (n int64) {
	for _, e := range events {
		n += e.N
	}
	return n
}

// TestGCRAInUse compares GCRA with a sliding window over the events that stand for its state: both
// let the next event pass at the same time.
func TestGCRAInUse(t *testing.T) {
	first := seed.First()
	for n := first; n < first+20; n++ {
		rng := rand.New(rand.NewPCG(n, 0))
		rate, burst := 1+rng.Int64N(20), 1+rng.Int64N(20)
		interval := time.Duration(1+rng.Int64N(100)) * time.Millisecond
		now := time.UnixMilli(1_700_000_000_000)
		refill := interval * time.Duration(burst)
		arrival := now.Add(time.Duration(rng.Int64N(int64(refill) + 1)).Truncate(time.Millisecond))
		events := imports.InUse(arrival, now, rate, burst, interval*time.Duration(rate))
		for at := now; at.Before(now.Add(2 * refill)); at = at.Add(time.Millisecond) {
			used := int64(0)
			for _, e := range events {
				if e.TS > at.Add(-refill).UnixMilli() {
					used++
				}
			}
			latest := at
			if arrival.After(at) {
				latest = arrival
			}
			passes := !latest.Add(interval).Add(-refill).After(at)
			if passes != (used < burst) {
				t.Fatalf("TWOTIER_TEST_FIRST=%d: %v later, %d of %d are in use, GCRA passes: %v", n,
					at.Sub(now), used, burst, passes)
			}
		}
	}
}

// sharedServer counts the events of one key. Between two operations another import may run.
type sharedServer struct {
	*rand.Rand
	log     []imports.Event
	running int
	other   func()
}

func (s *sharedServer) Span(context.Context, string) (int64, error) { return 86_400_000, nil }

func (s *sharedServer) Marked(context.Context, int64, []imports.Probe) ([]int64, error) {
	return []int64{sum(s.log)}, nil
}

func (s *sharedServer) Series(context.Context, imports.Mark, int64) (list []imports.Bucket,
	err error) {
	for _, e := range imports.Merge(append([]imports.Event(nil), s.log...)) {
		list = append(list, imports.Bucket{Start: e.TS, Width: 1, N: e.N})
	}
	return list, nil
}

func (s *sharedServer) Count(_ context.Context, _ int64, ops iter.Seq[imports.Op],
	counted func(*imports.Op)) (all bool, why, err error) {
	all = true
	for op := range ops {
		if s.running < 4 && s.IntN(4) == 0 {
			s.other()
		}
		if sum(s.log)+op.N > op.Max {
			all = false
			continue
		}
		s.log = append(s.log, imports.Event{TS: op.TS, N: op.N})
		counted(&op)
	}
	return all, nil, nil
}

// TestImportsAtOnceReportTheirShare runs up to four imports of one key at once: together they
// report each event as counted once, and each reports all events.
func TestImportsAtOnceReportTheirShare(t *testing.T) {
	first := seed.First()
	for n := first; n < first+*seeds; n++ {
		s := &sharedServer{Rand: rand.New(rand.NewPCG(n, 0))}
		now := time.Now().UnixMilli() - 60_000
		var events []imports.Event
		for i := range int64(1 + s.IntN(30)) {
			events = append(events, imports.Event{TS: now + i*10, N: 1 + s.Int64N(5)})
		}
		isTotal, counted := s.IntN(2) == 0, int64(0)
		run := func() {
			s.running++
			defer func() { s.running-- }()
			r, err := imports.ImportEvents(t.Context(), s, events, isTotal)
			if err != nil {
				t.Fatalf("TWOTIER_TEST_FIRST=%d: %v", n, err)
			}
			counted += r.Counted
			first := cmp.Or(r.First, new(imports.Sample))
			if r.Counted+r.Repeated+r.Meanwhile != sum(events) || first.Events != r.Counted {
				t.Errorf("TWOTIER_TEST_FIRST=%d: %+v, want %d", n, r, sum(events))
			}
		}
		s.other = run
		run()
		run()
		if counted != sum(events) || sum(s.log) != counted {
			t.Errorf("TWOTIER_TEST_FIRST=%d: %d reported, %d counted, want %d", n, counted,
				sum(s.log), sum(events))
		}
	}
}
