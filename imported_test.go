package twotier_test

import (
	"testing"

	"twotier.dev/twotier"
)

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
	if err != nil {
		t.Fatal(err)
	}
	for ns, want := range map[string]bool{"sms": true, "@imported/sms": true,
		"@imported/default": true, "@imported/other": false, "@imported": false} {
		if g.HasNamespace([]byte(ns)) != want {
			t.Errorf("%s: granted %v", ns, !want)
		}
	}
}
