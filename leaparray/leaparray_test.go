package leaparray_test

import (
	"errors"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one")

func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func ladder(t testing.TB, levels ...leaparray.Level) *leaparray.Ladder {
	t.Helper()
	if len(levels) == 0 {
		levels = leaparray.DefaultLevels()
	}
	l, err := leaparray.NewLadder(levels...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// count adds n at a moment to every level, growing the counter as needed.
func count(l *leaparray.Ladder, c leaparray.Counter, ms,
	n int64) (leaparray.Counter, leaparray.Change) {
	var total leaparray.Change
	s := l.Stamp(ms)
	for level := range l.Len() {
		ch, ok := l.Add(c, level, s[level], n)
		if !ok {
			c = l.Grow(c, leaparray.Heap{}, level, s[level], n)
			if ch, ok = l.Add(c, level, s[level], n); !ok {
				panic("no room after Grow")
			}
		}
		total.Live += ch.Live
		total.Expired += ch.Expired
	}
	return c, total
}

func TestFiveSecondWindow(t *testing.T) {
	l := ladder(t)
	const t0 = 1_763_000_000_000
	var c leaparray.Counter
	for _, step := range []struct{ at, add, want int64 }{{0, 1, 1}, {3000, 2, 3}, {4000, 0, 3},
		{7000, 0, 2}, {9000, 0, 0}} {
		if step.add > 0 {
			c, _ = count(l, c, t0+step.at, step.add)
		}
		e, ok := leaparray.View{Ladder: l, A: c}.Count(5000, t0+step.at, true)
		if !ok || e.Hi != step.want || e.Count != step.want || e.Lo != step.want {
			t.Errorf("at %d: got %+v %v, want %d", step.at, e, ok, step.want)
		}
	}
}

func TestTenPerFiveMinutes(t *testing.T) {
	l := ladder(t)
	day := int64(1_763_000_000_000) / 86_400_000 * 86_400_000
	at := func(h, m int64) int64 { return day + h*3_600_000 + m*60_000 }
	var c leaparray.Counter
	c, _ = count(l, c, at(11, 1), 1)
	c, _ = count(l, c, at(11, 5), 8)
	passed := 0
	for range 8 {
		if peak, _, ok := (leaparray.View{Ladder: l, A: c}).Peak(300_000, at(11, 6)); ok &&
			peak+1 <= 10 {
			c, _ = count(l, c, at(11, 6), 1)
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d of 8 passed, want 1", passed)
	}
}

func TestLadderRefusals(t *testing.T) {
	for name, levels := range map[string][]leaparray.Level{
		"none":      {},
		"zero":      {{time.Second, 0}},
		"narrow":    {{time.Millisecond, 5}},
		"fraction":  {{time.Second + time.Microsecond, 5}},
		"width":     {{time.Minute, 5}, {time.Second, 1000}},
		"span":      {{time.Second, 120}, {time.Minute, 2}},
		"too wide":  {{10000 * time.Hour, 1}},
		"too many":  make([]leaparray.Level, leaparray.MaxLevels+1),
		"too large": {{time.Second, leaparray.MaxBuckets + 1}},
		"too many buckets": {{time.Second, 4000}, {2 * time.Second, 4000}, {4 * time.Second, 4000},
			{8 * time.Second, 2401}},
	} {
		if _, err := leaparray.NewLadder(levels...); !errors.Is(err, leaparray.ErrLadder) {
			t.Errorf("%s: got %v, want ErrLadder", name, err)
		}
	}
	if got := ladder(t).String(); got != "1s x 60, 1m x 60, 15m x 96" {
		t.Errorf("String() = %q", got)
	}
}

type event struct{ at, n int64 }

// model is the obviously right counter: every bucket in a map, none ever dropped.
type model struct {
	l       *leaparray.Ladder
	buckets map[[2]int64]int64
	head    map[int64]int64
}

func (m *model) add(ms, n int64) {
	if n == 0 {
		return
	}
	s := m.l.Stamp(ms)
	for level := range int64(m.l.Len()) {
		m.head[level] = max(m.head[level], s[level])
		if s[level] >= m.head[level]-m.l.Keep(int(level)) {
			m.buckets[[2]int64{level, s[level]}] += n
		}
		for k, v := range m.buckets {
			if k[0] == level && (v == 0 || k[1] < m.head[level]-m.l.Keep(int(level))) {
				delete(m.buckets, k)
			}
		}
	}
}

func (m *model) compare(t *testing.T, c leaparray.Counter) {
	t.Helper()
	got := map[[2]int64]int64{}
	m.l.Each(c, func(level int, i, n int64) bool {
		got[[2]int64{int64(level), i}] += n
		return true
	})
	if len(got) != len(m.buckets) {
		t.Fatalf("%d live buckets, want %d", len(got), len(m.buckets))
	}
	for k, want := range m.buckets {
		if got[k] != want {
			t.Fatalf("bucket %v: %d, want %d", k, got[k], want)
		}
	}
}

// TestAgainstModel drives counters of random ladders with events that advance by fits and starts,
// come late, take back and exceed what a sparse bucket holds, and compares every bucket, and the
// running number of live ones, with a map.
func TestAgainstModel(t *testing.T) {
	rnd := newRand(t)
	ladders := []*leaparray.Ladder{
		ladder(t),
		ladder(t, leaparray.Level{Width: time.Second, Count: 5}),
		ladder(t, leaparray.Level{Width: 100 * time.Millisecond, Count: 10},
			leaparray.Level{Width: time.Second, Count: 7},
			leaparray.Level{Width: time.Minute, Count: 3}),
	}
	for round := range 60 {
		l := ladders[round%len(ladders)]
		m := &model{l: l, buckets: map[[2]int64]int64{}, head: map[int64]int64{}}
		var c leaparray.Counter
		live := 0
		now := int64(1_763_000_000_000)
		for range 300 {
			switch rnd.IntN(10) {
			case 0:
				now += rnd.Int64N(l.Span())
			case 1, 2, 3:
				now += rnd.Int64N(5000)
			}
			at, n := now, 1+rnd.Int64N(5)
			if rnd.IntN(4) == 0 {
				at -= rnd.Int64N(l.Span())
			}
			switch rnd.IntN(20) {
			case 0:
				n = 1 << 31
			case 1:
				n = -n
			case 2:
				n = 0
			}
			var ch leaparray.Change
			c, ch = count(l, c, at, n)
			live += ch.Live
			m.add(at, n)
			if rnd.IntN(30) == 0 {
				c = l.Compact(c, leaparray.Heap{}, func(int, int64) bool { return true })
				if c == nil {
					m.head = map[int64]int64{}
				}
				for level := range l.Len() {
					m.head[int64(level)] = l.Head(c, level)
				}
			}
		}
		m.compare(t, c)
		if live != len(m.buckets) {
			t.Fatalf("changes add up to %d live buckets, want %d", live, len(m.buckets))
		}
	}
}

// TestPeakNeverOverfills admits events, many of them late, while Peak leaves room, and then looks
// at every true window.
func TestPeakNeverOverfills(t *testing.T) {
	rnd := newRand(t)
	l := ladder(t)
	const window, limit = 20_000, 12
	var c leaparray.Counter
	var log []event
	now := int64(1_763_000_000_000)
	for range 5000 {
		now += rnd.Int64N(2000)
		at := now - rnd.Int64N(8000)
		v := leaparray.View{Ladder: l, A: c}
		n := 1 + rnd.Int64N(3)
		peak, _, ok := v.Peak(window, at)
		if !ok {
			t.Fatal("refused")
		}
		if peak+n <= limit {
			c, _ = count(l, c, at, n)
			log = append(log, event{at, n})
		} else if retry := v.RetryAfter(window, now, n, limit); retry < 0 || retry > window+1000 {
			t.Fatalf("retry after %d", retry)
		} else if p, _, _ := v.Peak(window, now+retry); retry > 0 && p+n > limit {
			t.Fatalf("after %d ms there is still no room: %d", retry, p)
		} else if retry > 1 {
			if p, _, _ := v.Peak(window, now+retry-1); p+n <= limit {
				t.Fatalf("there was room a millisecond before %d", retry)
			}
		}
	}
	for _, end := range log {
		var sum int64
		for _, e := range log {
			if e.at > end.at-window && e.at <= end.at {
				sum += e.n
			}
		}
		if sum > limit {
			t.Fatalf("window ending at %d holds %d, limit %d", end.at, sum, limit)
		}
	}
}

// TestCountOfVeryWideBuckets has up to 2^40 events in the bucket that a window begins in: times the
// milliseconds of a year, that is more than 64 bits hold.
func TestCountOfVeryWideBuckets(t *testing.T) {
	const width = 365 * 24 * time.Hour
	l, year := ladder(t, leaparray.Level{Width: width, Count: 10}), width.Milliseconds()
	for _, n := range []int64{1, 7, 2_000_000_000, 1 << 40} {
		c, _ := count(l, nil, 50*year, n)
		v := leaparray.View{Ladder: l, A: c}
		for _, outside := range []int64{0, 1, year / 7, year / 2, year - 1} {
			e, ok := v.Count(2*year, 52*year-1+outside, true)
			share := big.NewRat(n, year)
			want := share.Mul(share, big.NewRat(year-outside, 1)).FloatString(0)
			if !ok || e.Count < e.Lo || e.Count > e.Hi || fmt.Sprint(e.Count) != want {
				t.Errorf("%d events, %d ms outside: %+v, want %s", n, outside, e, want)
			}
		}
	}
}

func TestOutOfReach(t *testing.T) {
	l := ladder(t)
	var c leaparray.Counter
	now := int64(1_763_000_000_000)
	c, _ = count(l, c, now, 1)
	v := leaparray.View{Ladder: l, A: c}
	if _, ok := v.Range(l.Span()+1, now); ok {
		t.Error("a window longer than the ladder was accepted")
	}
	if _, ok := v.Range(l.Span(), now-3_600_000); ok {
		t.Error("a window that begins before the ladder was accepted")
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	l := ladder(t)
	var c leaparray.Counter
	now := int64(1_763_000_000_000)
	c, _ = count(l, c, now, 1)
	if n := testing.AllocsPerRun(100, func() { c, _ = count(l, c, now, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	v := leaparray.View{Ladder: l, A: c}
	if n := testing.AllocsPerRun(100, func() {
		v.Count(60_000, now, true)
		v.Peak(60_000, now)
	}); n != 0 {
		t.Errorf("%v allocations on read", n)
	}
}

func TestExpireReportsWhatFellBehind(t *testing.T) {
	l := ladder(t, leaparray.Level{Width: time.Second, Count: 10})
	for name, events := range map[string]int64{"sparse": 3, "dense": 10} {
		var c leaparray.Counter
		for i := range events {
			c, _ = count(l, c, 100_000+i*1000, 1)
		}
		var gone []int64
		l.Expire(c, 0, 100+l.Keep(0)+2, func(idx int64) { gone = append(gone, idx) })
		if len(gone) != 2 || gone[0] != 100 || gone[1] != 101 {
			t.Errorf("%s: %v fell behind, want 100 and 101", name, gone)
		}
		if got := l.Sum(c, 0, 0, 1000); got != events-2 {
			t.Errorf("%s: %d left, want %d", name, got, events-2)
		}
	}
}

// TestZeroBucketKeepsTheHead takes back the newest event: what fell behind it must not come back to
// life.
func TestZeroBucketKeepsTheHead(t *testing.T) {
	l := ladder(t, leaparray.Level{Width: time.Second, Count: 10})
	c, _ := count(l, nil, 100_000, 5)
	c, _ = count(l, c, 200_000, 1)
	c, _ = count(l, c, 200_000, -1)
	if ch, ok := l.Add(c, 0, 100, -5); !ok || ch != (leaparray.Change{}) {
		t.Errorf("a bucket that had fallen behind was written: %+v %v", ch, ok)
	}
	if got := l.Sum(c, 0, 0, 1000); got != 0 {
		t.Errorf("sum %d, want 0", got)
	}
}

// TestAddingNothingIsNothing adds zero to a bucket newer than all others: nothing falls behind it.
func TestAddingNothingIsNothing(t *testing.T) {
	l := ladder(t, leaparray.Level{Width: time.Second, Count: 10})
	for name, n := range map[string]int64{"sparse": 1, "dense": 1 << 30} {
		c, _ := count(l, nil, 100_000, n)
		ch, ok := l.Add(c, 0, 200, 0)
		if !ok || ch != (leaparray.Change{}) || l.Head(c, 0) != 100 || l.Sum(c, 0, 100, 100) != n {
			t.Errorf("%s: %+v, %v, newest %d, want 100", name, ch, ok, l.Head(c, 0))
		}
	}
}

func TestIndexRoundsDown(t *testing.T) {
	rnd := newRand(t)
	for _, width := range []time.Duration{50 * time.Millisecond, 77 * time.Millisecond, time.Second,
		15 * time.Minute, 24 * time.Hour} {
		l := ladder(t, leaparray.Level{Width: width, Count: 2})
		for range 100_000 {
			w := width.Milliseconds()
			i := rnd.Int64N(1<<52/w) - 1<<51/w
			for _, off := range []int64{0, 1, w / 2, w - 1} {
				if got := l.Index(0, i*w+off); got != i {
					t.Fatalf("bucket of %d with width %d: %d, want %d", i*w+off, w, got, i)
				}
			}
		}
	}
}
