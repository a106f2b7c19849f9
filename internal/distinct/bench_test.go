package distinct_test

import (
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
)

// BenchmarkRefusal refuses a value of a key with n values in each quarter of an hour of a day: few
// enough for exact sets, or so many that they are estimated.
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
					must.Succeed(b, e.Do(b.Context(), &op, &res, false))
				}
				c.ms.Add(day / 96)
			}
			op := distinct.Op{Key: key, Hashes: []uint64{e.Hash([]byte("another"))},
				Limits: []twotier.Limit{{Window: day, Max: int64(n) * 90}}}
			for b.Loop() {
				if err := e.Do(b.Context(), &op, &res, false); err != nil || res.Allowed {
					b.Fatal(res, err)
				}
			}
		})
	}
}

// BenchmarkAdd adds a value under a limit that has room: a known value of a key with few values,
// which are counted exactly, or with many, and a new value.
func BenchmarkAdd(b *testing.B) {
	for _, tt := range []struct {
		name   string
		values int
		known  bool
	}{{"exact", 3, true}, {"estimate", 5_000, true}, {"estimate, new", 5_000, false}} {
		b.Run(tt.name, func(b *testing.B) {
			const keys = 64
			e := engine(b, newClock(), nil, nil, nil, func(o *distinct.Options) {
				o.MaxMemory = 1 << 30
			})
			var res distinct.Result
			for i := range keys * tt.values {
				op := distinct.Op{Key: fmt.Append(nil, i%keys), Hashes: values(e, i/keys)}
				must.Succeed(b, e.Do(b.Context(), &op, &res, false))
			}
			op := distinct.Op{Limits: []twotier.Limit{{Window: 86_400_000, Max: 1 << 40}}}
			for i := 0; b.Loop(); i++ {
				name := i / keys
				if tt.known {
					name %= tt.values
				} else {
					name += tt.values
				}
				op.Key, op.Hashes = fmt.Append(op.Key[:0], i%keys), values(e, name)
				if err := e.Do(b.Context(), &op, &res, false); err != nil || !res.Allowed {
					b.Fatal(res, err)
				}
			}
		})
	}
}
