package leaparray_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// manyBuckets returns a counter with as many live buckets as a sparse level may have, on a ladder
// of a single wide level, and its newest bucket.
func manyBuckets(t testing.TB) (l *leaparray.Ladder, c leaparray.Counter, last int64) {
	l = ladder(t, leaparray.Level{Width: time.Second, Count: 3600})
	last = 1_763_000_000
	for i := range int64(1790) {
		c, _ = count(l, c, (last-3580+2*i+2)*1000, 1)
	}
	return l, c, last
}

// TestWindowsTakeOnePassOverTheBuckets counts the buckets that are looked at. What asks for one
// window after the other must not begin anew with each.
func TestWindowsTakeOnePassOverTheBuckets(t *testing.T) {
	l, c, last := manyBuckets(t)
	for name, v := range map[string]leaparray.View{"one": {Ladder: l, A: c},
		"two": {Ladder: l, A: c, B: c}} {
		const windows, buckets = 3600, 2 * 1790
		most, room, series := leaparray.Steps(v, 0, 600_000, last-windows+1, last)
		for what, steps := range map[string]int{"most": most, "room": room, "series": series} {
			if bound := 2 * (windows + buckets + 1); steps > bound {
				t.Errorf("%s counters, %s: %d steps, at most %d wanted", name, what, steps, bound)
			}
		}
	}
}

// BenchmarkWideLadder measures what is asked of a key with thousands of buckets.
func BenchmarkWideLadder(b *testing.B) {
	l, c, last := manyBuckets(b)
	v, now := leaparray.View{Ladder: l, A: c}, last*1000
	b.Run("retry after", func(b *testing.B) {
		for b.Loop() {
			v.RetryAfter(3_500_000, now, 1700, 1700)
		}
	})
	b.Run("late peak", func(b *testing.B) {
		for b.Loop() {
			v.Peak(1_700_000, now-1_700_000)
		}
	})
	b.Run("series", func(b *testing.B) {
		for b.Loop() {
			v.Series(3_600_000, now, func(int64, int64) {})
		}
	})
}
