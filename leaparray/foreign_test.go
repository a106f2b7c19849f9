package leaparray_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/leaparray"
)

// TestForeignCellsAreBounded adds cells of many widths that the ladder does not have, as from nodes
// with other ladders. Past the bound each new cell becomes part of an old one. The sum stays, and
// no bound of a window excludes the true number.
func TestForeignCellsAreBounded(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.DefaultLevels()...)
	rnd := rand.New(rand.NewPCG(1, 1))
	k, events, sum := key{l: l, now: begin}, log{}, int64(0)
	for range leaparray.MostForeign + 500 {
		s := leaparray.Stretch{Start: begin - rnd.Int64N(l.Span()), Width: 2 + rnd.Int64N(90)}
		n := 1 + rnd.Int64N(3)
		k.put(true, s, n)
		events, sum = append(events, event{s.Start + rnd.Int64N(s.Width), n}), sum+n
		if got := l.Total(k.synced); got != sum {
			t.Fatalf("%d cells sum to %d, want %d", len(events), got, sum)
		}
	}
	if n := l.CellCount(k.synced); n != leaparray.MostForeign {
		t.Errorf("%d cells, want %d", n, leaparray.MostForeign)
	}
	for range 300 {
		window := 1 + rnd.Int64N(l.Span())
		at := begin - rnd.Int64N(1+l.Span()-window)
		e, ok := k.view().Count(window, at, false)
		if n := events.within(window, at); !ok || n < e.Lo || n > e.Hi {
			t.Fatalf("%d in the window of %d ms that ends at %d: %+v", n, window, at, e)
		}
	}
	k.fold(k.exactFrom())
	if got := l.Total(k.synced); got != sum {
		t.Errorf("once folded, all cells sum to %d, want %d", got, sum)
	}
}

// TestTheOldestForeignCellsAreJoined fills a counter with foreign cells: one more widens the
// oldest, and leaves the others alone.
func TestTheOldestForeignCellsAreJoined(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.DefaultLevels()...)
	k := key{l: l, now: begin}
	at := func(i int64) leaparray.Stretch {
		return leaparray.Stretch{Start: begin - 10_000_000 + i*1000, Width: 70}
	}
	for i := range int64(leaparray.MostForeign) {
		k.put(true, at(i), 2)
	}
	k.put(true, at(3), 5) // one that is there
	if n := l.Value(k.synced, at(3)); n != 7 {
		t.Errorf("%d in a cell that was there, want 7", n)
	}
	late := leaparray.Stretch{Start: at(9).Start + 100, Width: 80}
	k.put(true, late, 5)
	joined := leaparray.Around(leaparray.Stretch{Start: at(0).Start,
		Width: late.End() - at(0).Start})
	for s, want := range map[leaparray.Stretch]int64{joined: 7, at(0): 0, late: 0, at(1): 2,
		at(leaparray.MostForeign - 1): 2} {
		if n := l.Value(k.synced, s); n != want {
			t.Errorf("%d in %v, want %d", n, s, want)
		}
	}
	early := leaparray.Stretch{Start: at(0).Start - 1000, Width: 80}
	k.put(true, early, 1)
	joined = leaparray.Around(leaparray.Stretch{Start: min(early.Start, joined.Start),
		Width: joined.End() - min(early.Start, joined.Start)})
	if joined.Start%joined.Width != 0 {
		t.Errorf("%v does not begin at a multiple of its width", joined)
	}
	if n := l.Value(k.synced, joined); n != 8 {
		t.Errorf("%d in %v, want 8: the oldest cell covers an older one, too", n, joined)
	}
}

// TestCellsFarAheadHaveAPlace counts ahead of the present, as if the clock had been set back: the
// cells in the way don't fold. Later they do.
func TestCellsFarAheadHaveAPlace(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.DefaultLevels()...)
	hour := minute.Milliseconds() * 60
	fine := func(ms int64) leaparray.Stretch {
		return leaparray.Stretch{Start: ms, Width: l.Width(0)}
	}
	for name, c := range map[string]struct {
		first, then func(i int64) leaparray.Stretch
	}{
		"moments": {func(i int64) leaparray.Stretch { return leaparray.Moment(begin + hour + i) },
			func(i int64) leaparray.Stretch { return leaparray.Moment(begin + 2*hour + i) }},
		"buckets": {func(i int64) leaparray.Stretch { return fine(begin - i*100) },
			func(i int64) leaparray.Stretch { return fine(begin + hour + i*100) }},
		"a bucket among moments": {
			func(i int64) leaparray.Stretch { return leaparray.Moment(begin + hour + i) },
			func(i int64) leaparray.Stretch { return fine(begin + hour + i*100) }},
	} {
		k := key{l: l, now: begin}
		for i := range int64(600) {
			k.put(true, c.first(i), 1)
		}
		for range 2 {
			for i := range int64(3) {
				k.put(true, c.then(i), 1)
			}
		}
		k.mark(true, c.then(10))
		if n := l.Value(k.synced, c.then(1)); n != 2 {
			t.Errorf("%s: %d in one ahead, want 2", name, n)
		}
		if n := l.Total(k.synced); n != 606 {
			t.Errorf("%s: the cells sum to %d, want 606", name, n)
		}
		k.put(true, c.then(1), -2)
		if n := l.Value(k.synced, c.then(1)); n != 0 {
			t.Errorf("%s: %d in one that was taken back, want 0", name, n)
		}
		k.now += 4 * hour
		k.fold(math.MaxInt64)
		for s := range k.cells() {
			if into, due := l.FoldTarget(s, k.now); due && s.Width > 1 {
				t.Errorf("%s: %v did not fold into %v", name, s, into)
			}
		}
		if n := l.Total(k.synced); n != 604 || k.dropped != 0 {
			t.Errorf("%s: once folded, the cells sum to %d, want 604", name, n)
		}
	}
}

// TestManySparseCells fills a counter with as many sparse buckets as a ladder of many levels
// allows, so that none of them is a ring.
func TestManySparseCells(t *testing.T) {
	l := ladder(t, leaparray.DefaultExact, leaparray.Level{Width: 50 * ms, Count: 4096},
		leaparray.Level{Width: 100 * ms, Count: 4096},
		leaparray.Level{Width: 200 * ms, Count: 4096},
		leaparray.Level{Width: 400 * ms, Count: 2112})
	k, n := key{l: l, now: begin}, int64(0)
	for i := range int64(2112) {
		for level := range l.Len() {
			if w := l.Width(level); i < int64(l.BucketsKept(level)/2) {
				k.put(true, leaparray.Stretch{Start: begin/w*w - i*w, Width: w}, 1)
				n++
			}
		}
		if got := l.Total(k.synced) + k.dropped; got != n {
			t.Fatalf("the cells sum to %d, want %d", got, n)
		}
	}
}
