package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
)

// First returns the first seed of a random test, never 0: a random one, or TWOTIER_TEST_FIRST, with
// which CI runs the same tests every time.
func First() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("TWOTIER_TEST_FIRST"), 10, 64); err == nil && n > 0 {
		return n
	}
	return 1 + rand.Uint64N(1<<40)
}
