package load

import (
	"fmt"
	"math/rand/v2"
)

// ZipfExponent is that of word frequencies and, nearly, of users by activity.
const ZipfExponent = 1.1

// Dists returns the names of the ways in which [Keys] draws.
func Dists() []string { return []string{"uniform", "zipf", "same", "distinct"} }

// Keys returns what draws the number of the next key, for one goroutine: uniform and zipf (exponent
// [ZipfExponent]) from n keys, same is always 0, and distinct is whatever fresh returns.
func Keys(dist string, rng *rand.Rand, n uint64, fresh func() uint64) (func() uint64, error) {
	switch dist {
	case "same":
		return func() uint64 { return 0 }, nil
	case "distinct":
		return fresh, nil
	case "zipf":
		return rand.NewZipf(rng, ZipfExponent, 1, n-1).Uint64, nil
	case "uniform":
		return func() uint64 { return rng.Uint64N(n) }, nil
	}
	return nil, fmt.Errorf("dist %q: want one of %v", dist, Dists())
}
