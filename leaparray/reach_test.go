package leaparray_test

import (
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// without returns a counter that lacks the buckets for which gone returns true, as if something
// else had deleted them.
func without(l *leaparray.Ladder, c leaparray.Counter,
	gone func(level int, idx int64) bool) (to leaparray.Counter) {
	l.EachKept(c, func(level int, idx, n int64) bool {
		if gone(level, idx) {
			return true
		}
		if n == 0 {
			to = mark(l, to, level, idx)
			return true
		}
		to = l.Grow(to, leaparray.Heap{}, level, idx, n)
		l.Add(to, level, idx, n)
		return true
	})
	return to
}

func mark(l *leaparray.Ladder, c leaparray.Counter, level int, idx int64) leaparray.Counter {
	if _, ok := l.Mark(c, level, idx); !ok {
		c = l.Grow(c, leaparray.Heap{}, level, idx, 1)
		l.Mark(c, level, idx)
	}
	return c
}

// TestWindowsOfThePastMissNothing counts in order and late, takes back, copies what is to be told
// to others, and deletes what is old by age or because of newer buckets. Whatever window is asked
// for, if it is answered, then from a level that has all of it.
func TestWindowsOfThePastMissNothing(t *testing.T) {
	for name, aging := range map[string]bool{"newer buckets": false, "age": true} {
		t.Run(name, func(t *testing.T) {
			rnd := newRand(t)
			for range 40 {
				l := ladder(t, leaparray.Level{Width: 100 * time.Millisecond, Count: 10},
					leaparray.Level{Width: time.Second, Count: 7},
					leaparray.Level{Width: time.Minute, Count: 3})
				var c leaparray.Counter
				var log []event
				now := int64(1_763_000_000_000)
				for range 200 {
					now += rnd.Int64N(4000) * rnd.Int64N(2)
					at := now + rnd.Int64N(2000)*rnd.Int64N(2)
					if rnd.IntN(3) == 0 {
						at = now - rnd.Int64N(l.Span())
					}
					e := event{at, 1 + rnd.Int64N(3)}
					c, _ = count(l, c, e.at, e.n)
					if rnd.IntN(4) == 0 {
						c, _ = count(l, c, e.at, -e.n)
					} else {
						log = append(log, e)
					}
					if rnd.IntN(20) == 0 {
						now += rnd.Int64N(60_000)
					}
					v := leaparray.View{Ladder: l}
					if aging {
						v.Now = now
					}
					c = without(l, c, func(level int, idx int64) bool {
						return aging && idx < l.Index(level, now)-l.Keep(level) && rnd.IntN(2) == 0
					})
					v.A = c
					window, end := 1+rnd.Int64N(l.Span()), now-rnd.Int64N(l.Span())*rnd.Int64N(2)
					if rnd.IntN(4) > 0 {
						window = 1 + rnd.Int64N(1500)
						end = max(end, now-rnd.Int64N(8000))
					}
					exact := int64(0)
					for _, e := range log {
						if e.at > end-window && e.at <= end {
							exact += e.n
						}
					}
					if got, ok := v.Count(window, end, false); ok && got.Hi < exact {
						t.Fatalf("a window of %d ms that ended %d ms ago: %+v, it holds %d", window,
							now-end, got, exact)
					} else if !ok && end == now {
						t.Fatalf("a window of %d ms that ends now is refused", window)
					}
				}
			}
		})
	}
}

// TestLostLevelIsPassedOver deletes the buckets of the finest level: a coarser one shows that there
// were some.
func TestLostLevelIsPassedOver(t *testing.T) {
	l := ladder(t)
	const t0 = 1_763_000_000_000
	c, _ := count(l, nil, t0, 10)
	c = without(l, c, func(level int, _ int64) bool { return level == 0 })
	v := leaparray.View{Ladder: l, A: c}
	if peak, r, ok := v.Peak(10_000, t0); !ok || r.Level != 1 || peak != 10 {
		t.Errorf("%d on level %d, %v, want 10 on level 1", peak, r.Level, ok)
	}
	if e, ok := v.Count(10_000, t0+3_600_000, true); !ok || e.Hi != 0 {
		t.Errorf("an hour later the window holds %+v, %v", e, ok)
	}
}

// TestAgedBucketsAreNotReliedOn reads a window that ended longer ago than buckets live, whether or
// not they are still there.
func TestAgedBucketsAreNotReliedOn(t *testing.T) {
	l := ladder(t)
	const t0 = 1_763_000_000_000
	c, _ := count(l, nil, t0, 10)
	for _, step := range []struct{ later, bucket int64 }{{0, 1000}, {50_000, 1000},
		{70_000, 60_000}, {3_800_000, 900_000}} {
		v := leaparray.View{Ladder: l, A: c, Now: t0 + step.later}
		if e, ok := v.Count(10_000, t0, false); !ok || e.Bucket != step.bucket || e.Hi != 10 {
			t.Errorf("%d ms later: %+v, %v, want buckets of %d ms", step.later, e, ok, step.bucket)
		}
	}
	v := leaparray.View{Ladder: l, A: c, Now: t0 + 2*l.Span()}
	if _, ok := v.Count(10_000, t0, false); ok {
		t.Error("a window that nothing keeps is answered")
	}
}

// TestMarkedBucketIsTold makes an empty bucket the newest: what falls behind it is gone, and others
// hear of it.
func TestMarkedBucketIsTold(t *testing.T) {
	l := ladder(t, leaparray.Level{Width: time.Second, Count: 10})
	for name, n := range map[string]int64{"sparse": 1, "dense": 1 << 30} {
		c, _ := count(l, nil, 100_000, n)
		c = mark(l, c, 0, 200)
		c = mark(l, c, 0, 150)
		var told []int64
		l.EachKept(c, func(_ int, idx, n int64) bool {
			told = append(told, idx, n)
			return true
		})
		if !slices.Equal(told, []int64{200, 0}) || l.Head(c, 0) != 200 {
			t.Errorf("%s: told %v, newest %d", name, told, l.Head(c, 0))
		}
	}
}
