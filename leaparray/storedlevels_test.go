package leaparray_test

import (
	"testing"

	"twotier.dev/twotier/leaparray"
)

// TestLevelsThatLackSomethingArePassedOver reads windows from a ladder of which others count the
// finest level not at all and the second one with fewer buckets.
func TestLevelsThatLackSomethingArePassedOver(t *testing.T) {
	l, err := leaparray.ParseLadder("1s x 60, 10s x 60, 1m x 60, 15m x 96")
	if err != nil {
		t.Fatal(err)
	}
	const now = 1_763_000_000_000
	var c leaparray.Counter
	c, _ = count(l, c, now, 5)
	bucket := func(window int64) int64 {
		t.Helper()
		e, ok := leaparray.View{Ladder: l, A: c}.Count(window, now, true)
		if !ok || e.Count != 5 {
			t.Errorf("%d ms: %+v, %v", window, e, ok)
		}
		return e.Bucket
	}
	if b := bucket(60_000); b != 1000 {
		t.Errorf("a minute is read from buckets of %d ms", b)
	}
	l = l.StoredAs(func() *leaparray.StoredLevels {
		return &leaparray.StoredLevels{ID: [leaparray.MaxLevels]uint8{3, 0, 1, 2},
			Reach: [leaparray.MaxLevels]int64{0, 300_000, 3_600_000, 0}}
	})
	for window, want := range map[int64]int64{1: 10_000, 300_000: 10_000, 300_001: 60_000,
		3_600_000: 60_000, 3_600_001: 900_000, 86_400_000: 900_000} {
		if got := bucket(window); got != want {
			t.Errorf("%d ms are read from buckets of %d ms, want %d", window, got, want)
		}
	}
	v := leaparray.View{Ladder: l, A: c}
	for level, want := range []bool{false, false, true, false} {
		if _, ok := v.Complete(level); ok != want {
			t.Errorf("level %d is complete: %v", level, ok)
		}
	}
}
