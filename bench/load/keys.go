package load

import (
	"fmt"
	"math/rand/v2"
)

// ZipfExponent is the exponent of word frequencies and, nearly, of the activity of users.
const ZipfExponent = 1.1

// Keys returns a function that draws the number of the next key, for use by one goroutine. uniform
// and zipf (exponent [ZipfExponent]) draw from n keys, same always returns 0, and distinct returns
// the result of fresh. Any other name is an error.
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
	return nil, fmt.Errorf("dist %q: want uniform, zipf, same or distinct", dist)
}
