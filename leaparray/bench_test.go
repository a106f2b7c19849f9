package leaparray_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// defaults are the levels of the default ladder.
func defaults(tb testing.TB) *leaparray.Ladder {
	return ladder(tb, 64, leaparray.DefaultLevels()...)
}

const begin = int64(1_700_000_000_000)

// BenchmarkAcquire decides by two limits and counts, at a steady pace.
func BenchmarkAcquire(b *testing.B) {
	for _, pace := range []struct {
		name string
		step time.Duration
	}{{"1 a minute", time.Minute}, {"1 a second", time.Second}, {"100 a second", 10 * ms},
		{"10,000 a second", ms / 10}} {
		b.Run(pace.name, func(b *testing.B) {
			l := defaults(b)
			k, us := key{l: l}, begin*1000
			for i := 0; b.Loop(); i++ {
				us += pace.step.Microseconds()
				k.now = us / 1000
				v := k.view()
				v.Peak(60_000, k.now)
				v.Peak(86_400_000, k.now)
				k.count(k.now, 1)
				if i%64 == 0 {
					k.fold(k.exactFrom())
				}
			}
		})
	}
}
