package leaparray_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// unusual returns ladders of unusual shapes, and the default one.
func unusual(t *testing.T) []*leaparray.Ladder {
	const ms, hour = time.Millisecond, time.Hour
	type levels = []leaparray.Level
	var all []*leaparray.Ladder
	for _, l := range []levels{leaparray.DefaultLevels(), {{time.Second, 1}}, {{time.Minute, 3}},
		{{53 * ms, 7}, {997 * ms, 13}}, {{50 * ms, 3}, {51 * ms, 4}, {7919 * ms, 2}},
		{{time.Second, 60}, {24 * hour, 30}}, {{100 * ms, 3600}}} {
		all = append(all, ladder(t, l...))
	}
	return all
}

// exactLog is what was counted, by its exact time.
type exactLog []event

// within adds up the events of a window.
func (log exactLog) within(window, at int64) (n int64) {
	for _, e := range log {
		if e.at > at-window && e.at <= at {
			n += e.n
		}
	}
	return n
}

// edges draws a window and the moment that it ends at, no later than a given one. Each edge is
// often that of a bucket, or a millisecond off.
func edges(rnd *rand.Rand, l *leaparray.Ladder, latest int64) (window, at int64) {
	width := l.Width(rnd.IntN(l.Len()))
	edge := func(ms int64) int64 {
		if rnd.IntN(3) == 0 {
			return ms
		}
		return ms - ms%width - 1 + rnd.Int64N(3)
	}
	at = latest
	if rnd.IntN(2) == 0 {
		at = min(latest, edge(latest-rnd.Int64N(min(l.Span(), 5*width))))
	}
	longest := l.Span()
	if rnd.IntN(2) == 0 {
		longest = min(longest, 3*width)
	}
	return min(l.Span(), max(1, at-edge(at-1-rnd.Int64N(longest)))), at
}

// TestBoundsAgainstExactLog replays events, in order, late and ahead of the present, and holds
// every answer against the list of timestamps, whatever edges of buckets a window begins or ends
// at.
func TestBoundsAgainstExactLog(t *testing.T) {
	rnd := newRand(t)
	for i, l := range unusual(t) {
		for range 10 {
			checkBounds(t, rnd, i, l)
		}
	}
}

func checkBounds(t *testing.T, rnd *rand.Rand, i int, l *leaparray.Ladder) {
	t.Helper()
	var log exactLog
	var c [2]leaparray.Counter
	now := int64(1_763_000_000_000) + rnd.Int64N(100_000)
	step := 1 + rnd.Int64N(3*l.Width(0))
	for range 300 {
		now += rnd.Int64N(step)
		e := event{now, 1 + rnd.Int64N(3)}
		switch rnd.IntN(8) {
		case 0:
			e.at -= rnd.Int64N(min(2*l.FineSpan(), l.Span()))
		case 1:
			e.at += 1 + rnd.Int64N(leaparray.MaxAhead.Milliseconds())
		}
		log = append(log, e)
		which := rnd.IntN(2)
		c[which], _ = count(l, c[which], e.at, e.n)
		if e.at > now {
			c[which] = mark(l, c[which], 0, l.Beyond(e.at))
		}
		v := leaparray.View{Ladder: l, A: c[0], B: c[1]}
		for range 4 {
			window, at := edges(rnd, l, now)
			got, ok := v.Count(window, at, at == now)
			if !ok && at == now {
				t.Fatalf("ladder %d: a window of %d ms that ends now is refused", i, window)
			}
			if !ok {
				continue
			}
			end := at - at%got.Bucket + got.Bucket
			exact, wider := log.within(window, at), log.within(end-at+window+got.Bucket, end)
			if got.Lo > exact || exact > got.Hi || got.Hi > wider || got.Count < got.Lo ||
				got.Count > got.Hi {
				t.Fatalf("ladder %d %v, window of %d ms, %d ms ago: %+v, exact %d, with a bucket "+
					"more %d", i, l, window, now-at, got, exact, wider)
			}
		}
	}
}
