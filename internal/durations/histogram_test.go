package durations_test

import (
	"math"
	"testing"
	"time"

	"twotier.dev/twotier/internal/durations"
)

// TestBucketsHoldWhatIsCounted counts durations of all sizes and checks that each lies between the
// bounds of its bucket.
func TestBucketsHoldWhatIsCounted(t *testing.T) {
	bound := func(i int) float64 { return math.Exp2(float64(i) / (1 << durations.Schema)) }
	for d := 2 * time.Microsecond; d < time.Minute; d += d / 7 {
		var h durations.Histogram
		h.Observe(d)
		s := h.Snapshot()
		if s.Count != 1 || s.Sum != d || len(s.Buckets) != 1 {
			t.Fatalf("%v: %+v", d, s)
		}
		for i := range s.Buckets {
			if !(bound(i-1) < d.Seconds() && d.Seconds() <= bound(i)) {
				t.Errorf("%v is in bucket %d, from %g to %g", d, i, bound(i-1), bound(i))
			}
		}
	}
}

func TestExtremesAreCounted(t *testing.T) {
	var h durations.Histogram
	for _, d := range []time.Duration{-time.Second, 0, 1, time.Hour, math.MaxInt64 / 2} {
		h.Observe(d)
	}
	const sum = 1 + time.Hour + math.MaxInt64/2
	if s := h.Snapshot(); s.Count != 5 || len(s.Buckets) != 2 || s.Sum != sum {
		t.Errorf("%+v", s)
	}
}

func BenchmarkObserve(b *testing.B) {
	var h durations.Histogram
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(731 * time.Microsecond)
	}
}
