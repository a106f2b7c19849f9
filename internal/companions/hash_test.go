package companions_test

import (
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/companions"
)

// TestHash: hashes depend on the seed, and none stands for a class of values.
func TestHash(t *testing.T) {
	var all []uint64
	for i := range 1000 {
		all = append(all, companions.HashValue(uint64(i%2), fmt.Append(nil, i/2)))
	}
	slices.Sort(all)
	if all[0] < 64 || len(slices.Compact(all)) != 1000 {
		t.Errorf("%d different ones, the lowest is %d", len(slices.Compact(all)), all[0])
	}
}
