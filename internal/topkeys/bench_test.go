package topkeys_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"twotier.dev/twotier/internal/topkeys"
)

// BenchmarkSample counts keys: one that is tracked, and a stream of new ones, each of which
// replaces another.
func BenchmarkSample(b *testing.B) {
	for name, keys := range map[string]int{"tracked": 1, "new": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			s := topkeys.NewSample()
			for i := range topkeys.MaxSampled {
				s.Add(check(strconv.Itoa(i), 1), noon)
			}
			c, now := check("k", 1), int64(noon)
			b.ReportAllocs()
			for b.Loop() {
				c.Key = strconv.AppendInt(c.Key[:0], int64(rand.IntN(keys)), 10)
				s.Add(c, now)
				now++
			}
		})
	}
}
