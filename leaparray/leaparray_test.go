package leaparray_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

var seedFlag = flag.Uint64("seed", 0, "run a random test with this seed alone")

// eachSeed runs a test with n seeds, or only with the seed of the flag.
func eachSeed(t *testing.T, n uint64, run func(t *testing.T, rnd *rand.Rand)) {
	first, last := uint64(1), n
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last && !t.Failed(); seed++ {
		run(t, rand.New(rand.NewPCG(seed, 7)))
		if t.Failed() {
			t.Logf("-seed=%d", seed)
		}
	}
}

const (
	ms     = time.Millisecond
	second = time.Second
	minute = time.Minute
)

func ladder(t testing.TB, exact int, levels ...leaparray.Level) *leaparray.Ladder {
	t.Helper()
	l, err := leaparray.NewLadder(exact, levels...)
	must.Succeed(t, err)
	return l
}

// randomLadder returns a random ladder with the given number of exact events.
func randomLadder(t testing.TB, rnd *rand.Rand, exact int) *leaparray.Ladder {
	levels := []leaparray.Level{
		{Width: time.Duration(50+rnd.IntN(500)) * ms, Count: 1 + rnd.IntN(80)}}
	for range rnd.IntN(4) {
		last := levels[len(levels)-1]
		w := last.Width * time.Duration(2+rnd.IntN(15))
		levels = append(levels, leaparray.Level{Width: w,
			Count: int(last.Span()/w) + 1 + rnd.IntN(60)})
	}
	return ladder(t, exact, levels...)
}

// event is an entry of an exact log.
type event struct{ at, n int64 }

type log []event

// within returns the events of the window of this length that ends at a moment.
func (l log) within(window, at int64) (n int64) {
	for _, e := range l {
		if e.at > at-window && e.at <= at {
			n += e.n
		}
	}
	return n
}

// peak returns the most events of any window of this length that contains a moment.
func (l log) peak(window, at int64) (peak int64) {
	peak = l.within(window, at)
	for _, e := range l {
		if e.at > at && e.at < at+window {
			peak = max(peak, l.within(window, e.at))
		}
	}
	return peak
}

// key is a key with two counters: synced has the store's counts, pending the unflushed ones.
type key struct {
	l               *leaparray.Ladder
	synced, pending leaparray.Counter
	now, dropped    int64
}

func (k *key) view() leaparray.View {
	return leaparray.View{Ladder: k.l, A: k.synced, B: k.pending, Now: k.now}
}

// count counts an event unless it is too old, and reports whether it did.
func (k *key) count(ts, n int64) bool {
	s := leaparray.Moment(ts)
	if k.view().Cell(ts).Width != 1 {
		bucket, ok := k.l.Bucket(ts, k.now)
		if !ok {
			return false
		}
		if s = bucket; ts > k.now {
			k.mark(false, k.l.BucketAfter(ts))
		}
	}
	k.put(false, s, n)
	return true
}

// takeBack takes back the newest events, in the log as well. It leaves out cells whose events are
// uncertain because narrower cells lie within them.
func (k *key) takeBack(n int64, events log) (taken int64) {
	all := k.cells()
	certain := func(s leaparray.Stretch, e *event) bool {
		inside := e.at >= s.Start && e.at < s.End()
		for other, n := range all {
			inside = inside && (n <= 0 || other.Width >= s.Width || e.at < other.Start ||
				e.at >= other.End())
		}
		return inside
	}
	k.view().SelectNewest(n, func(s leaparray.Stretch, n int64) {
		var from []*event
		sum := int64(0)
		for i := range events {
			if e := &events[i]; e.n > 0 && certain(s, e) {
				from, sum = append(from, e), sum+e.n
			}
		}
		if sum < n {
			return
		}
		k.put(false, s, -n)
		taken += n
		for _, e := range from {
			take := min(n, e.n)
			e.n, n = e.n-take, n-take
		}
	})
	return taken
}

// put counts n in a cell of a counter.
func (k *key) put(synced bool, s leaparray.Stretch, n int64) {
	k.change(synced, func(v *leaparray.View, c *leaparray.Counter) int64 {
		dropped, _ := v.Put(c, leaparray.Heap{}, s, n)
		return dropped
	})
}

func (k *key) mark(synced bool, s leaparray.Stretch) {
	k.change(synced, func(v *leaparray.View, c *leaparray.Counter) int64 {
		dropped, _ := v.Mark(c, leaparray.Heap{}, s)
		return dropped
	})
}

func (k *key) change(synced bool, change func(v *leaparray.View, c *leaparray.Counter) int64) {
	v := k.view()
	c := &v.B
	if synced {
		c = &v.A
	}
	k.dropped += change(&v, c)
	k.synced, k.pending = v.A, v.B
}

func (k *key) exactFrom() int64 { return k.view().ExactFrom() }

func (k *key) fold(exactFrom int64) {
	v := k.view()
	k.dropped += v.Fold(leaparray.Heap{}, exactFrom)
	k.synced, k.pending = v.A, v.B
}

// flush moves the pending counts to synced.
func (k *key) flush() {
	pending := key{l: k.l, pending: k.pending}
	k.pending = nil
	for s, n := range pending.cells() {
		k.put(true, s, n)
	}
	if s, ok := k.l.Marked(pending.pending); ok {
		k.mark(true, s)
	}
}

// shuffle folds, flushes or compacts at random.
func (k *key) shuffle(rnd *rand.Rand) {
	switch rnd.IntN(10) {
	case 0:
		k.fold(k.exactFrom())
	case 1:
		k.flush()
	case 2:
		k.synced = k.l.Compact(k.synced, leaparray.Heap{})
	}
}

// TestBoundsAgainstExactLog counts random streams, with bursts, late events and events ahead, by
// random ladders, and folds at random moments. No bound excludes the true number, and the sum of
// all cells is the number of counted events.
func TestBoundsAgainstExactLog(t *testing.T) {
	eachSeed(t, 400, func(t *testing.T, rnd *rand.Rand) {
		l := randomLadder(t, rnd, []int{0, 1, 8, 64}[rnd.IntN(4)])
		k, events, total := key{l: l, now: 1_700_000_000_000 + rnd.Int64N(1e9)}, log{}, int64(0)
		pause := 1 + rnd.Int64N(1+l.Span()/int64(20+rnd.IntN(200)))
		for range 50 + rnd.IntN(400) {
			if rnd.IntN(5) > 0 {
				k.now += rnd.Int64N(pause)
			}
			ts := k.now
			switch rnd.IntN(10) {
			case 0:
				ts -= rnd.Int64N(l.Span())
			case 1:
				ts += rnd.Int64N(2000)
			}
			n := int64(1)
			if rnd.IntN(20) == 0 {
				n = 1 + rnd.Int64N(1<<rnd.IntN(30))
			}
			if k.count(ts, n) {
				events, total = append(events, event{ts, n}), total+n
			}
			if rnd.IntN(20) == 0 {
				total -= k.takeBack(1+rnd.Int64N(10), events)
			}
			k.shuffle(rnd)
			checkBounds(t, rnd, &k, events)
			if t.Failed() {
				return
			}
		}
		if sum := l.Total(k.synced) + l.Total(k.pending); sum != total-k.dropped {
			t.Errorf("%v: the cells sum to %d, want %d: %d were counted, %d dropped", l.Levels(),
				sum, total-k.dropped, total, k.dropped)
		}
	})
}

func checkBounds(t *testing.T, rnd *rand.Rand, k *key, events log) {
	window, at, live := 1+rnd.Int64N(k.l.Span()), k.now, true
	if rnd.IntN(2) == 0 {
		window = 1 + rnd.Int64N(1+window/20)
	}
	if rnd.IntN(2) == 0 {
		at, live = at-rnd.Int64N(k.l.Span()), false
	}
	v := k.view()
	e, ok := v.Count(window, at, live)
	if !ok {
		if at-window >= k.now-k.l.Span() {
			t.Errorf("the window of %d ms that ends at %d is out of reach", window, at)
		}
		return
	}
	if n := events.within(window, at); n < e.Lo || n > e.Hi || e.Count < e.Lo || e.Count > e.Hi {
		t.Errorf("%v exact %d, now %d: %d events in the window of %d that ends at %d, live %v: %+v",
			k.l.Levels(), k.l.ExactEvents(), k.now, n, window, at, live, e)
	}
	if n := events.peak(window, at); true {
		if peak, _ := v.Peak(window, at); peak < n {
			t.Errorf("%v: %d events in a window of %d around %d: %d", k.l.Levels(), n, window, at,
				peak)
		}
	}
}

// TestFewEventsAreDecidedAsByALog decides random streams by random limits that are no larger than
// the number of exact events. Every verdict is the same as by a log of all events.
func TestFewEventsAreDecidedAsByALog(t *testing.T) {
	eachSeed(t, 300, func(t *testing.T, rnd *rand.Rand) {
		exact := []int{1, 8, 64}[rnd.IntN(3)]
		l := randomLadder(t, rnd, exact)
		k, events := key{l: l, now: 1_700_000_000_000 + rnd.Int64N(1e9)}, log{}
		type limit struct{ window, most int64 }
		var limits []limit
		for range 1 + rnd.IntN(3) {
			least := l.Levels()[0].Width.Milliseconds()
			window := least + rnd.Int64N(1+(l.Span()-least)>>rnd.IntN(8))
			limits = append(limits, limit{window, 1 + rnd.Int64N(int64(exact))})
		}
		pause := 1 + rnd.Int64N(1+2*limits[0].window/limits[0].most)
		admitted := 0
		for range 600 {
			k.now += rnd.Int64N(pause)
			switch rnd.IntN(50) {
			case 0:
				k.now += rnd.Int64N(l.Span())
			case 1: // a burst that nobody decides
				for range rnd.IntN(3 * exact) {
					k.count(k.now, 1)
					events = append(events, event{k.now, 1})
					k.now += rnd.Int64N(2)
				}
			}
			want, got := true, true
			for _, m := range limits {
				want = want && events.within(m.window, k.now) < m.most
				peak, ok := k.view().Peak(m.window, k.now)
				got = got && ok && peak < m.most
			}
			if got != want {
				var all []string
				list := func(s leaparray.Stretch, n int64) bool {
					all = append(all, fmt.Sprint(s.Start-k.now, "+", s.Width, ":", n))
					return true
				}
				l.EachCell(k.synced, list)
				l.EachCell(k.pending, list)
				t.Fatalf("%v exact %d, limits %v, after %d: admitted %v, a log %v: %v", l.Levels(),
					exact, limits, admitted, got, want, all)
			}
			if got {
				k.count(k.now, 1)
				events, admitted = append(events, event{k.now, 1}), admitted+1
			}
			k.shuffle(rnd)
		}
	})
}

// TestRetryAfterIsExact waits exactly as long as RetryAfter returns, and not a millisecond less,
// for late events, too.
func TestRetryAfterIsExact(t *testing.T) {
	refused := 0
	eachSeed(t, 300, func(t *testing.T, rnd *rand.Rand) {
		l := randomLadder(t, rnd, []int{0, 8, 64}[rnd.IntN(3)])
		k := key{l: l, now: 1_700_000_000_000 + rnd.Int64N(1e9)}
		for range 100 {
			k.now += rnd.Int64N(1 + l.Span()/100)
			k.count(k.now-rnd.Int64N(1+l.Span()/int64(2+rnd.IntN(50))), 1+rnd.Int64N(3))
			k.shuffle(rnd)
		}
		for range 20 {
			window, at := 1+rnd.Int64N(l.Span()/2), k.now-rnd.Int64N(1+l.Span()/3)
			n, limit := 1+rnd.Int64N(5), 1+rnd.Int64N(30)
			fits := func(at int64) bool {
				peak, ok := k.view().Peak(window, at)
				return ok && peak+n <= limit
			}
			v := k.view()
			wait := v.RetryAfter(window, at, n, limit)
			switch {
			case n > limit:
				if wait != -1 {
					t.Errorf("%d of %d: wait %d", n, limit, wait)
				}
			case !v.Covers(window, at):
			case !fits(at+wait) || wait > 0 && fits(at+wait-1):
				t.Errorf("%v: %d of %d in %d at %d, now %d: wait %d; then %v, earlier %v",
					l.Levels(), n, limit, window, at, k.now, wait, fits(at+wait), fits(at+wait-1))
			case wait > 0:
				refused++
			}
		}
	})
	if *seedFlag == 0 && refused < 500 {
		t.Errorf("only %d of all were refused", refused)
	}
}

// TestCopiesThatFoldApartAgree keeps two copies of a key, which fold at different times: they have
// the same total, and the bounds of each contain the number of events.
func TestCopiesThatFoldApartAgree(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		l := randomLadder(t, rnd, []int{0, 8, 64}[rnd.IntN(3)])
		start, events := 1_700_000_000_000+rnd.Int64N(1e9), log{}
		a, b := key{l: l, now: start}, key{l: l, now: start}
		for range 300 {
			a.now += rnd.Int64N(1 + l.Span()/400)
			b.now = a.now
			ts := a.now - rnd.Int64N(1+l.Span()/int64(1+rnd.IntN(1000)))
			a.count(ts, 1)
			b.count(ts, 1)
			events = append(events, event{ts, 1})
			a.shuffle(rnd)
			b.shuffle(rnd)
			checkBounds(t, rnd, &a, events)
			checkBounds(t, rnd, &b, events)
		}
		sum := func(k *key) int64 { return l.Total(k.synced) + l.Total(k.pending) + k.dropped }
		if sum(&a) != 300 || sum(&b) != 300 {
			t.Errorf("%v: %d and %d, want 300", l.Levels(), sum(&a), sum(&b))
		}
	})
}

// TestSumsAgainstEachCell compares the sums of random windows with sums over all cells, one by one.
func TestSumsAgainstEachCell(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		k := randomKey(t, rnd)
		for range 50 {
			window, at := 1+rnd.Int64N(k.l.Span()), k.now-rnd.Int64N(k.l.Span())
			for s := range k.cells() { // edges of any two
				if window = max(1, at+1-s.Start); rnd.IntN(2) == 0 {
					at = s.End() - 1
				}
				if rnd.IntN(3) == 0 {
					break
				}
			}
			from, hi, lo := at-window+1, int64(0), int64(0)
			for s, n := range k.cells() {
				if s.Start <= at && s.End() > from {
					hi += n
				}
				if s.Start >= from && s.End() <= at+1 {
					lo += n
				}
			}
			e, ok := k.view().Count(window, at, false)
			if ok && (e.Hi != hi || e.Lo != lo) || k.view().UpperBound(from, at) != hi {
				t.Errorf("%v: %d at %d: %+v, Hi %d; want %d to %d", k.l.Levels(), window, at-k.now,
					e, k.view().UpperBound(from, at), lo, hi)
			}
		}
	})
}

// cells returns all cells of a key.
func (k *key) cells() map[leaparray.Stretch]int64 {
	all := map[leaparray.Stretch]int64{}
	for _, c := range []leaparray.Counter{k.synced, k.pending} {
		k.l.EachCell(c, func(s leaparray.Stretch, n int64) bool {
			all[s] += n
			return true
		})
	}
	return all
}

// randomKey returns a key with some hundred events.
func randomKey(t *testing.T, rnd *rand.Rand) *key {
	k := &key{l: randomLadder(t, rnd, []int{0, 8, 64}[rnd.IntN(3)]),
		now: 1_700_000_000_000 + rnd.Int64N(1e9)}
	for range 50 + rnd.IntN(300) {
		k.now += rnd.Int64N(1 + k.l.Span()/300)
		k.count(k.now-rnd.Int64N(1+k.l.Span()/int64(1+rnd.IntN(1000))), 1+rnd.Int64N(3))
		k.shuffle(rnd)
	}
	return k
}

// TestCellsOfAnotherLadder counts a key by one ladder, hands its cells to a counter of another, and
// goes on there. Widths need not be the same, nor divide each other.
func TestCellsOfAnotherLadder(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		a := key{l: randomLadder(t, rnd, 8), now: 1_700_000_000_000 + rnd.Int64N(1e9)}
		b := key{l: randomLadder(t, rnd, 16)}
		span, events := min(a.l.Span(), b.l.Span()), log{}
		count := func(k *key) {
			for range 100 {
				k.now += rnd.Int64N(1 + span/200)
				if ts := k.now - rnd.Int64N(1+span/int64(4+rnd.IntN(100))); k.count(ts, 1) {
					events = append(events, event{ts, 1})
				}
				k.shuffle(rnd)
			}
		}
		count(&a)
		b.now = a.now
		for s, n := range a.cells() {
			b.put(true, s, n)
		}
		count(&b)
		for range 20 {
			window := 1 + rnd.Int64N(span)
			e, ok := b.view().Count(window, b.now, true)
			n := events.within(window, b.now)
			if ok && (n < e.Lo || n > e.Hi || e.Count < e.Lo || e.Count > e.Hi) {
				t.Errorf("%v, then %v: %d in %d: %+v", a.l.Levels(), b.l.Levels(), n, window, e)
			}
			checkSeries(t, &b, window, events, false)
		}
		sum := b.l.Total(b.synced) + b.l.Total(b.pending)
		if want := int64(len(events)) - a.dropped - b.dropped; sum != want {
			t.Errorf("%v, then %v: the cells sum to %d, want %d", a.l.Levels(), b.l.Levels(), sum,
				want)
		}
	})
}

// TestBusyKeysKeepFewMilliseconds counts 10,000 events a second, and then one a second.
func TestBusyKeysKeepFewMilliseconds(t *testing.T) {
	l := ladder(t, 64, leaparray.Level{Width: 100 * ms, Count: 100},
		leaparray.Level{Width: second, Count: 100})
	k := key{l: l, now: 1_700_000_000_000}
	moments := func() (cells, events int64) {
		for s, c := range k.cells() {
			if s.Width == 1 {
				cells, events = cells+1, events+c
			}
		}
		return cells, events
	}
	for i := range 20_000 {
		k.now = 1_700_000_000_000 + int64(i)/10
		if k.count(k.now, 1); k.view().HasSpareMoments() {
			k.fold(k.exactFrom())
		}
		if n, _ := moments(); i%100 == 0 && n > 2*64+32+100 {
			t.Fatalf("%d cells of a millisecond after %d events", n, i)
		}
	}
	for range 100 {
		k.now += 1000
		k.count(k.now, 1)
	}
	k.fold(k.exactFrom())
	if _, n := moments(); n != 64 {
		t.Errorf("once folded, %d events keep their millisecond", n)
	}
	if _, was := moments(); k.count(k.now-80_000, 1) {
		if _, n := moments(); n != was {
			t.Error("a late event with 64 newer ones keeps its millisecond")
		}
	}
}

// TestSeriesSumsToTheWindow compares the sum of a series with the exact log.
func TestSeriesSumsToTheWindow(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		l := randomLadder(t, rnd, 64)
		k, events := key{l: l, now: 1_700_000_000_000}, log{}
		for range 200 {
			k.now += rnd.Int64N(1 + l.Span()/150)
			k.count(k.now, 1)
			events = append(events, event{k.now, 1})
			k.shuffle(rnd)
		}
		checkSeries(t, &k, 1+rnd.Int64N(l.Span()), events, true)
	})
}

// checkSeries checks a series of the window that ends now. If cells do not nest, its sum may exceed
// the window, as UpperBound may.
func checkSeries(t *testing.T, k *key, window int64, events log, nest bool) {
	sum := int64(0)
	var starts []int64
	width, ok := k.view().Series(window, k.now, func(start, n int64) {
		starts, sum = append(starts, start), sum+n
	})
	if !ok {
		return
	}
	first, last := starts[0], starts[len(starts)-1]
	if from := k.now - window + 1; first > from || first+width <= from || last > k.now ||
		last+width <= k.now {
		t.Errorf("%v, %d: the series begins at %d and ends at %d", k.l.Levels(), window, first,
			last)
	}
	for s := range k.cells() {
		if s.End() > k.now-window+1 && s.Start <= k.now && s.Width > width {
			t.Errorf("%v, %d: a series of %d, and a cell of %d", k.l.Levels(), window, width,
				s.Width)
		}
	}
	n, hi := events.within(k.now-first+1, k.now), k.view().UpperBound(first, k.now)
	if sum < n || sum > hi || nest && sum > n {
		t.Errorf("%v, %d: the series sums to %d, want %d, at most %d", k.l.Levels(), window, sum, n,
			hi)
	}
}

// TestCellsAreBoundedThoughNobodyFolds counts an event every second, and never calls Fold.
func TestCellsAreBoundedThoughNobodyFolds(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.DefaultLevels()...)
	k := key{l: l, now: begin}
	for i := range 20_000 {
		k.now += 1000
		if k.count(k.now, 1); len(k.pending) > 2048 {
			t.Fatalf("%d words after %d events", len(k.pending), i+1)
		}
	}
	if n := l.Total(k.pending); n != 20_000 {
		t.Errorf("the cells sum to %d, want 20000", n)
	}
}

func TestLadderRefusals(t *testing.T) {
	for _, c := range []struct {
		exact  int
		levels []leaparray.Level
		want   string
	}{
		{64, nil, "0 levels, want 1 to 6"},
		{-1, []leaparray.Level{{second, 60}}, "-1 exact events, want 0 to 256"},
		{64, []leaparray.Level{{10 * ms, 60}}, "level 0: width 10ms"},
		{64, []leaparray.Level{{second, 60}, {1500 * ms, 60}},
			"level 1: width 1.5s is no multiple of the finer level's 1s; 2s is"},
		{64, []leaparray.Level{{second, 60}, {5 * second, 60}, {12 * second, 60}},
			"level 2: width 12s is no multiple of the finer level's 5s; 10s and 15s are"},
		{64, []leaparray.Level{{second, 60}, {minute, 1}}, "level 1: covers 1m0s, want more"},
	} {
		_, err := leaparray.NewLadder(c.exact, c.levels...)
		if !errors.Is(err, leaparray.ErrLadder) ||
			!strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%v: %v, want %q", c.levels, err, c.want)
		}
	}
}
