package twotier_test

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
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

// TestMarksOfImports: a mark has the partition of its key, also by a hash tag, and the token of its
// key's namespace.
func TestMarksOfImports(t *testing.T) {
	place := twotier.Placement{Partitions: 1021, Seed: 5,
		HashTags: twotier.HashTags{"tagged": true}}
	for _, ns := range []string{"", "sms", "tagged"} {
		for _, key := range []string{"ann", "{b}/c", "a/b/c"} {
			markNS, markKey := twotier.ImportedKey(ns, "source", key)
			if place.Of([]byte(markNS), []byte(markKey)) != place.Of([]byte(ns), []byte(key)) {
				t.Errorf("%s %s: the mark is in another partition", ns, key)
			}
			if !twotier.IsImported([]byte(markNS)) || twotier.IsImported([]byte(ns)) {
				t.Errorf("%s, %s", ns, markNS)
			}
		}
	}
	g, err := twotier.NewGrant("token", "count", "sms,default")
	must.Succeed(t, err)
	for ns, want := range map[string]bool{"sms": true, "@imported/sms": true,
		"@imported/default": true, "@imported/other": false, "@imported": false} {
		if g.HasNamespace([]byte(ns)) != want {
			t.Errorf("%s: granted %v", ns, !want)
		}
	}
}
