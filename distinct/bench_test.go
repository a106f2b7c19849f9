package distinct_test

import (
	"fmt"
	"testing"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/syncer"
)

// BenchmarkRefusal refuses a value of a key that has values in each quarter of an hour of a day, as
// many in each as its name says: sets that are exact, and ones that are estimates.
func BenchmarkRefusal(b *testing.B) {
	const day = 86_400_000
	for _, n := range []int{3, 5_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newClock()
			e := engine(b, c, nil, nil, nil, nil)
			key := []byte("k")
			var res distinct.Result
			for quarter := range 96 {
				for i := 0; i < n; i += 1000 {
					op := distinct.Op{Key: key}
					for j := i; j < min(i+1000, n); j++ {
						op.Hashes = append(op.Hashes, e.Hash([]byte(fmt.Sprint(quarter, j))))
					}
					if err := e.Do(b.Context(), &op, &res, false); err != nil {
						b.Fatal(err)
					}
				}
				c.ms.Add(day / 96)
			}
			op := distinct.Op{Key: key, Hashes: []uint64{e.Hash([]byte("another"))},
				Limits: []syncer.Limit{{Window: day, Max: int64(n) * 90}}}
			for b.Loop() {
				if err := e.Do(b.Context(), &op, &res, false); err != nil || res.Allowed {
					b.Fatal(res, err)
				}
			}
		})
	}
}
