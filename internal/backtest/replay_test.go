package backtest_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
)

const (
	noon = int64(1_763_035_200_000)
	hour = int64(time.Hour / time.Millisecond)
)

// ladders returns one whose events don't keep their millisecond, the default one, one that reaches
// back longer than a day, one with widths that are no round numbers, and one with a single level.
func ladders(t *testing.T) (all []*leaparray.Ladder) {
	t.Helper()
	for _, of := range []struct {
		exact  int
		levels []leaparray.Level
	}{
		{0, []leaparray.Level{{Width: time.Second, Count: 60}, {Width: time.Minute, Count: 60},
			{Width: 15 * time.Minute, Count: 96}}},
		{leaparray.DefaultExact, leaparray.DefaultLevels()},
		{3, []leaparray.Level{{Width: time.Second, Count: 90},
			{Width: 10 * time.Minute, Count: 500}}},
		{5, []leaparray.Level{{Width: 700 * time.Millisecond, Count: 100},
			{Width: 49 * time.Second, Count: 90}, {Width: 980 * time.Second, Count: 100}}},
		{20, []leaparray.Level{{Width: 5 * time.Minute, Count: 300}}},
	} {
		l, err := leaparray.NewLadder(of.exact, of.levels...)
		must.Succeed(t, err)
		all = append(all, l)
	}
	return all
}

// counted returns the view of a key with these events at noon. Some of the events are in the second
// counter, and some of these at the precision of another ladder.
func counted(l, other *leaparray.Ladder, rnd *rand.Rand, events []int64) leaparray.View {
	v := leaparray.View{Ladder: l}
	for _, ms := range events {
		v.Now = ms
		switch rnd.IntN(6) {
		case 0:
			if at, ok := other.Bucket(ms, ms+rnd.Int64N(noon-ms+1)); ok {
				v.Put(&v.B, leaparray.Heap{}, at, 1)
				continue
			}
			fallthrough
		case 1:
			v.Put(&v.B, leaparray.Heap{}, v.Cell(ms), 1)
		default:
			v.Put(&v.A, leaparray.Heap{}, v.Cell(ms), 1)
		}
		if rnd.IntN(20) == 0 {
			v.Fold(leaparray.Heap{}, v.ExactFrom())
		}
	}
	v.Now = noon
	return v
}

// add counts an event that happens now.
func add(v *leaparray.View, ms int64) {
	v.Now = ms
	v.Fold(leaparray.Heap{}, v.ExactFrom())
	v.Put(&v.A, leaparray.Heap{}, v.Cell(ms), 1)
}

// happened returns random events of the last back milliseconds before noon, oldest first: single
// ones, and bursts of all lengths.
func happened(rnd *rand.Rand, back int64) (events []int64) {
	for range 1 + rnd.IntN(12) {
		at, length := noon-rnd.Int64N(back), int64(1)<<rnd.IntN(26)
		if rnd.IntN(3) == 0 {
			at = noon - 1 - rnd.Int64N(2*hour)
		}
		for range rnd.IntN(60) {
			if ms := at + rnd.Int64N(length); ms <= noon && ms > noon-back {
				events = append(events, ms)
			}
		}
	}
	slices.Sort(events)
	return events
}

// within counts the events in the window that ends at a moment.
func within(events []int64, window, at int64) (n int64) {
	for _, ms := range events {
		if ms > at-window && ms <= at {
			n++
		}
	}
	return n
}

// refusedBy submits one event after the other to limits and returns the refused ones. It counts the
// others, either as exact times or in the buckets of a key.
func refusedBy(limits []twotier.Limit, l *leaparray.Ladder, events []int64,
	exact bool) (refused []int64) {
	var passed []int64
	kept := leaparray.View{Ladder: l}
	for _, ms := range events {
		full := slices.ContainsFunc(limits, func(limit twotier.Limit) bool {
			if exact {
				return within(passed, limit.WindowAt(ms), ms) >= limit.Max
			}
			if kept.Now = ms; limit.Period != nil {
				start, end := limit.Period.Around(ms)
				return kept.UpperBound(start, end-1) >= limit.Max
			}
			peak, ok := kept.Peak(limit.Window, ms)
			return !ok || peak >= limit.Max
		})
		if full {
			refused = append(refused, ms)
			continue
		}
		passed = append(passed, ms)
		add(&kept, ms)
	}
	return refused
}

// TestBoundsHoldTheTruth replays random histories and decides about each event with exact windows
// and with buckets. The actual refusals are within the bounds, for each limit alone and for the
// rule, and so are the peak and the present count.
func TestBoundsHoldTheTruth(t *testing.T) {
	first := seed.First()
	t.Logf("TWOTIER_TEST_FIRST=%d", first)
	all := ladders(t)
	tight, loose, somewhere := 0, 0, 0
	for n := range uint64(400) {
		rnd := rand.New(rand.NewPCG(first, n))
		l := all[rnd.IntN(len(all))]
		events := happened(rnd, l.Span())
		limits := randomLimits(rnd, l)
		other := all[rnd.IntN(len(all))]
		o := backtest.Replay(counted(l, other, rnd, events), limits)
		recent := func(list []int64) int64 {
			if o.From == 0 {
				return 0
			}
			return within(list, noon-o.From+1, noon)
		}
		if got := recent(events); got < within(events, 24*hour, noon) || got > o.Events {
			t.Errorf("%d: %d of %d events since %d, replayed %d", n, got, len(events), o.From,
				o.Events)
		}
		for _, exact := range []bool{true, false} {
			got := recent(refusedBy(limits, l, events, exact))
			if got < o.Refused.Min || got > o.Refused.Max {
				t.Errorf("%d: exact %v: refused %d, bounds %+v: %v on %v", n, exact, got,
					o.Refused, limits, l)
			}
			for i, limit := range limits {
				got := recent(refusedBy(limits[i:i+1], l, events, exact))
				if b := o.Limits[i].Refused; got < b.Min || got > b.Max {
					t.Errorf("%d: exact %v: %+v refused %d, bounds %+v on %v", n, exact, limit, got,
						b, l)
				}
			}
		}
		judgeCounts(t, n, o, limits, events)
		switch {
		case o.Refused.Max == 0:
		case o.Refused.Min == o.Refused.Max:
			tight++
		default:
			somewhere++
			loose += int(100 * (o.Refused.Max - o.Refused.Min) / o.Events)
		}
	}
	t.Logf("%d tight bounds, %d others, on average %d %% of the events apart", tight, somewhere,
		loose/max(1, somewhere))
	if tight == 0 || somewhere == 0 {
		t.Error("the histories are all alike")
	}
}

// randomLimits returns one to three limits that a ladder covers.
func randomLimits(rnd *rand.Rand, l *leaparray.Ladder) (limits []twotier.Limit) {
	for range 1 + rnd.IntN(3) {
		window := []int64{1, 1500, 60_000, 600_000, hour, 5 * hour, 24 * hour}[rnd.IntN(7)]
		if rnd.IntN(3) == 0 {
			window = 1 + rnd.Int64N(24*hour)
		}
		limit := twotier.Limit{Window: min(window, l.Span()), Max: rnd.Int64N(1 << rnd.IntN(8))}
		if p := randomPeriod(rnd); rnd.IntN(3) == 0 && p.Longest() <= l.Span() {
			limit.Window, limit.Period = 0, p
		}
		limits = append(limits, limit)
	}
	return limits
}

// randomPeriod returns one of a few periods.
func randomPeriod(rnd *rand.Rand) *twotier.Period {
	texts := []string{"hour", "hour@Asia/Kathmandu", "day", "day.9@Asia/Shanghai"}
	p, err := twotier.ParsePeriod(texts[rnd.IntN(len(texts))])
	if err != nil {
		panic(err)
	}
	return p
}

// judgeCounts compares the present counts and the peaks with the true ones.
func judgeCounts(t *testing.T, n uint64, o backtest.Outcome, limits []twotier.Limit,
	events []int64) {
	t.Helper()
	refuses := false
	for i, limit := range limits {
		lim := &o.Limits[i]
		now := within(events, limit.WindowAt(noon), noon)
		if now < lim.Now.Min || now > lim.Now.Max {
			t.Errorf("%d: %+v: %d now, bounds %+v", n, limit, now, lim.Now)
		}
		if lim.Refuses != (lim.Now.Max+1 > limit.Max) {
			t.Errorf("%d: %+v refuses: %v with %+v", n, limit, lim.Refuses, lim.Now)
		}
		refuses = refuses || lim.Refuses
		peak := int64(0)
		for _, ms := range events {
			if o.From > 0 && ms >= o.From {
				peak = max(peak, within(events, limit.WindowAt(ms), ms))
			}
		}
		if peak < lim.Peak.Min || peak > lim.Peak.Max {
			t.Errorf("%d: %+v: peak %d, bounds %+v", n, limit, peak, lim.Peak)
		}
	}
	if o.Refuses != refuses {
		t.Errorf("%d: the rule refuses: %v", n, o.Refuses)
	}
}

// TestReplayOfABurst replays an example small enough to check by hand: 20 events within one minute,
// six hours ago, and 3 now.
func TestReplayOfABurst(t *testing.T) {
	l := ladders(t)[0]
	v := leaparray.View{Ladder: l}
	for i := range int64(20) {
		add(&v, noon-6*hour+i*3000)
	}
	for i := range int64(3) {
		add(&v, noon-2000+i*1000)
	}
	for _, test := range []struct {
		window, most  int64
		refused, peak backtest.Bounds
		now           bool
	}{
		// The burst is known to a quarter of an hour: it may have been spread over all of it.
		{60_000, 5, between(0, 15), between(3, 20), false},
		{60_000, 1, between(7, 21), between(3, 20), true},
		{900_000, 5, between(15, 15), between(20, 20), false},
		{24 * hour, 22, between(1, 1), between(23, 23), true},
		{24 * hour, 23, between(0, 0), between(23, 23), true},
		{24 * hour, 24, between(0, 0), between(23, 23), false},
		{60_000, 0, between(23, 23), between(3, 20), true},
	} {
		o := backtest.Replay(v, []twotier.Limit{{Window: test.window, Max: test.most}})
		if o.Refused != test.refused || o.Limits[0].Peak != test.peak || o.Refuses != test.now ||
			o.Events != 23 {
			t.Errorf("%+v: %+v", test, o)
		}
	}
}

func between(least, most int64) backtest.Bounds { return backtest.Bounds{Min: least, Max: most} }

// TestReplayOfExactEvents replays the same burst on the default ladder: its events keep their
// millisecond, so both bounds are equal.
func TestReplayOfExactEvents(t *testing.T) {
	v := leaparray.View{Ladder: leaparray.Default()}
	for i := range int64(20) {
		add(&v, noon-6*hour+i*3000)
	}
	v.Now = noon
	o := backtest.Replay(v, []twotier.Limit{{Window: 60_000, Max: 5}, {Window: 3000, Max: 2}})
	if o.Refused != between(15, 15) || o.Limits[0].Peak != between(20, 20) ||
		o.Limits[1].Refused != between(0, 0) || o.From != noon-6*hour {
		t.Errorf("%+v", o)
	}
}

// TestReplayOfADay replays 12 events of yesterday and 9 of today by a daily limit of 8.
func TestReplayOfADay(t *testing.T) {
	l := ladders(t)[1]
	v := leaparray.View{Ladder: l}
	midnight := noon - 12*hour
	for i := range int64(21) {
		add(&v, midnight+(i-12)*hour+hour/2)
	}
	v.Now = noon
	p, err := twotier.ParsePeriod("day")
	must.Succeed(t, err)
	o := backtest.Replay(v, []twotier.Limit{{Period: p, Max: 8}})
	lim := o.Limits[0]
	if lim.Now.Count != 9 || !lim.Refuses || lim.Peak != between(12, 12) ||
		lim.Refused != between(5, 5) {
		t.Errorf("%+v", o)
	}
}
