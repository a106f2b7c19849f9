package syncer_test

import (
	"math/rand/v2"
	"slices"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// In the models, a key whose name begins with a slash has different values in place of events, and
// its sum is their number.

// isOfValues reports whether a key has different values.
func isOfValues(key string) bool { return strings.HasPrefix(key, "/") }

// spaceOf returns the namespace of a key.
func spaceOf(key string) []byte {
	if !isOfValues(key) {
		return nil
	}
	ns, _ := twotier.ValuesKey(nil, nil)
	return ns
}

// checkOf returns a check that adds n to the sum of a key.
func checkOf(key string, n int64) twotier.Check {
	c := twotier.Check{NS: spaceOf(key), Key: []byte(key), N: n}
	if isOfValues(key) {
		c.Kind = twotier.ValuesCheck
		for range n {
			c.Values = append(c.Values, leaparray.CleanHash(rand.Uint64()))
		}
		slices.Sort(c.Values)
	}
	return c
}

// sumOf returns the sum of a key's buckets.
func sumOf(key string, buckets []syncer.Bucket) (n int64) {
	for _, b := range buckets {
		switch {
		case !b.IsValue():
			n += b.N
		case b.N > 0 && isOfValues(key):
			n++
		}
	}
	return n
}
