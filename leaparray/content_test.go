package leaparray_test

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/leaparray"
)

// TestEachUpTo compares the cells up to a width with all cells. Those of a width that the ladder
// has come in the order of time, the narrow ones first.
func TestEachUpTo(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		k := randomKey(t, rnd)
		widest := k.l.Width(rnd.IntN(k.l.Len())) - rnd.Int64N(2)
		want, last := map[leaparray.Stretch]int64{}, leaparray.Stretch{}
		k.l.EachCell(k.synced, func(s leaparray.Stretch, n int64) bool {
			if s.Width <= widest {
				want[s] += n
			}
			return true
		})
		k.l.EachUpTo(k.synced, widest, func(s leaparray.Stretch, n int64) {
			if s.Width < last.Width || s.Width == last.Width && s.Start <= last.Start {
				t.Errorf("%v after %v", s, last)
			}
			if want[s] != n {
				t.Errorf("%d in %v, want %d", n, s, want[s])
			}
			delete(want, s)
			last = s
		})
		if len(want) > 0 {
			t.Errorf("up to %d ms, it lacks %v", widest, want)
		}
	})
}
