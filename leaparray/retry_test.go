package leaparray_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// firstRoom returns the shortest wait after which there is room, of those that are a multiple of
// step. It reports false if no level has all of a window on the way.
func firstRoom(v leaparray.View, window, at, n, limit, step int64) (wait int64, ok bool) {
	for {
		p, _, ok := v.Peak(window, at+wait)
		if !ok || p+n <= limit {
			return wait, ok
		}
		wait += step
	}
}

// TestRetryAfterIsExact counts in order, late and ahead of the present, and looks for the first
// moment at which there is room, millisecond by millisecond.
func TestRetryAfterIsExact(t *testing.T) {
	rnd := newRand(t)
	l := ladder(t, leaparray.Level{Width: 50 * time.Millisecond, Count: 60})
	waits := 0
	for range 8 {
		var c [2]leaparray.Counter
		now := int64(1_763_000_000_000)
		for range 40 {
			now += rnd.Int64N(100)
			at := now + rnd.Int64N(2000)*rnd.Int64N(2) - rnd.Int64N(500)*rnd.Int64N(2)
			which := rnd.IntN(2)
			c[which], _ = count(l, c[which], at, 1+rnd.Int64N(3))
			v := leaparray.View{Ladder: l, A: c[0], B: c[1]}
			window, limit := 1+rnd.Int64N([2]int64{120, 2500}[rnd.IntN(2)]), 1+rnd.Int64N(40)
			n, from := 1+rnd.Int64N(limit), now-rnd.Int64N(300)*rnd.Int64N(2)
			want, ok := firstRoom(v, window, from, n, limit, 1)
			if !ok {
				continue
			}
			if want > 0 {
				waits++
			}
			if got := v.RetryAfter(window, from, n, limit); got != want {
				t.Fatalf("window of %d ms, %d of %d: retry after %d, want %d", window, n, limit,
					got, want)
			}
		}
	}
	if waits == 0 {
		t.Error("there always was room")
	}
}

// TestRetryAfterLongWaits asks late by many more buckets than are looked at one by one. The wait is
// never too short. It is exact if it ends among the buckets that are. Moments and windows are such
// that room begins only where a bucket does.
func TestRetryAfterLongWaits(t *testing.T) {
	rnd := newRand(t)
	const width, now, far = 50, 1_763_000_000_000, 512
	l := ladder(t, leaparray.Level{Width: width * time.Millisecond, Count: 2000})
	exact, longer := 0, 0
	for i := range 40 {
		gap, limit := 1+rnd.Int64N(100), 1+rnd.Int64N(5)
		if i%2 == 0 {
			gap, limit = 1, 1 // full until there is a gap after 1,000 buckets
		}
		var c leaparray.Counter
		for at := now - l.Span(); at < now; at += width * (1 + rnd.Int64N(gap)) {
			if at < now-1000*width || at > now-500*width {
				c, _ = count(l, c, at, 1+rnd.Int64N(3))
			}
		}
		v := leaparray.View{Ladder: l, A: c}
		window := 1 + width*rnd.Int64N(2*gap)
		at := now - l.Span() + width*(2*gap+rnd.Int64N(200))
		want, _ := firstRoom(v, window, at, 1, limit, width)
		got := v.RetryAfter(window, at, 1, limit)
		p, _, ok := v.Peak(window, at+got)
		switch {
		case !ok || p+1 > limit || got < want:
			t.Fatalf("window of %d ms, limit %d: no room after %d ms", window, limit, got)
		case got == want:
			exact++
		case want+window <= far*width:
			t.Fatalf("window of %d ms, limit %d: retry after %d, want %d", window, limit, got, want)
		default:
			longer++
		}
	}
	if exact == 0 || longer < 20 {
		t.Errorf("%d waits were exact, %d longer: the test shows nothing", exact, longer)
	}
}

func TestRetryAfterNever(t *testing.T) {
	l := ladder(t)
	if got := (leaparray.View{Ladder: l}).RetryAfter(1000, 5000, 11, 10); got != -1 {
		t.Errorf("got %d, want -1", got)
	}
}
