package leaparray_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// defaults returns the default ladder.
func defaults(tb testing.TB) *leaparray.Ladder {
	return ladder(tb, 64, leaparray.DefaultLevels()...)
}

const begin = int64(1_700_000_000_000)

// counting is a key whose counts are pending. It counts as package syncer does.
type counting struct{ leaparray.View }

// add counts n events of the present.
func (c *counting) add(n int64) {
	at := c.Cell(c.Now)
	if _, ok := c.Ladder.Add(c.B, at, n); !ok {
		c.Put(&c.B, leaparray.Heap{}, at, n)
	}
}

// BenchmarkAcquire decides by two limits and counts, at a steady pace.
func BenchmarkAcquire(b *testing.B) {
	for _, pace := range []struct {
		name string
		step time.Duration
	}{{"1 a minute", time.Minute}, {"1 a second", time.Second}, {"100 a second", 10 * ms},
		{"10,000 a second", ms / 10}} {
		b.Run(pace.name, func(b *testing.B) {
			c, us := counting{leaparray.View{Ladder: defaults(b)}}, begin*1000
			for i := 0; b.Loop(); i++ {
				us += pace.step.Microseconds()
				c.Now = us / 1000
				c.Peak(60_000, c.Now)
				c.Peak(86_400_000, c.Now)
				c.add(1)
				if i%64 == 0 {
					c.Fold(leaparray.Heap{}, c.ExactFrom())
				}
			}
		})
	}
}
