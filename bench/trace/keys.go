package trace

import (
	"fmt"
	"math/rand/v2"
)

// Keys says which key the next event has. It is for one goroutine.
type Keys func() uint64

// Same is one hot key.
func Same() Keys {
	return func() uint64 { return 0 }
}

// Uniform draws evenly from n keys.
func Uniform(seed, n uint64) Keys {
	r := rand.New(rand.NewPCG(seed, n))
	return func() uint64 { return r.Uint64N(n) }
}

// ZipfExponent is close to what is seen of users and addresses; the generator needs more than 1.
const ZipfExponent = 1.1

// Zipf draws from n keys of which a few are popular: key k with a probability that falls as (k+1)^-ZipfExponent.
func Zipf(seed, n uint64) Keys {
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, n)), ZipfExponent, 1, n-1)
	return z.Uint64
}

// Distinct gives no key twice: first, first+1, and so on.
func Distinct(first uint64) Keys {
	next := first
	return func() uint64 {
		next++
		return next - 1
	}
}

// NewKeys returns the keys called same, uniform, zipf or distinct. Distinct keys of different seeds don't meet.
func NewKeys(name string, seed, n uint64) (Keys, error) {
	switch name {
	case "same":
		return Same(), nil
	case "uniform":
		return Uniform(seed, n), nil
	case "zipf":
		return Zipf(seed, n), nil
	case "distinct":
		return Distinct(seed << 40), nil
	}
	return nil, fmt.Errorf("keys %q: not one of same, uniform, zipf, distinct", name)
}
