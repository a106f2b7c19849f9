package twotier_test

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier"
)

// TestLeaseEnd: a lease ends at most 1/128 of its length late and never early, and leases that are
// open at the same time share few ends, so that a counter can keep all of them apart.
func TestLeaseEnd(t *testing.T) {
	const now = 1_763_000_000_123
	longest := twotier.MaxLease.Milliseconds()
	ends, minutes := map[int64]bool{}, map[int64]bool{}
	for range 1_000_000 {
		lasts := 1 + rand.Int64N(1<<rand.IntN(28))%longest
		begun := now - rand.Int64N(lasts)
		end := twotier.LeaseEnd(begun, lasts)
		if late := end - begun - lasts; late < 0 || late > lasts/128 {
			t.Fatalf("a lease of %d ms ends %d ms late", lasts, late)
		}
		ends[end] = true
		minutes[twotier.LeaseEnd(now-rand.Int64N(60_000), 60_000)] = true
	}
	if len(ends) > 2700 || len(minutes) > 257 {
		t.Errorf("%d ends in all, and %d of one length", len(ends), len(minutes))
	}
}
