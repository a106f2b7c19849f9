package leaparray_test

import (
	"testing"

	"twotier.dev/twotier/leaparray"
)

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
