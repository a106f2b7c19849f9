package syncer_test

import (
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestUnlistedKeysAreNotOnTop although they count most; they are counted and read like others.
func TestUnlistedKeysAreNotOnTop(t *testing.T) {
	c := open(t, syncer.Options{
		Store:      embedded.New(embedded.Options{}),
		Namespaces: map[string]syncer.Namespace{"quiet": {Unlisted: true}},
	})
	for ns, n := range map[string]int64{"quiet": 9, "sms": 2} {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{NS: []byte(ns),
			Key: []byte("k"),
			N:   n, Limits: []twotier.Limit{{Window: 60_000, Max: 100}}}}}
		var res twotier.Result
		if err := c.Do(t.Context(), &op, &res); err != nil || res.Checks[0].Limits[0].Count != n {
			t.Errorf("%s: %+v, %v", ns, res, err)
		}
	}
	rows, err := c.Top(t.Context(), 1, 60_000)
	if want := []twotier.KeyCount{{NS: "sms", Key: "k", Count: 2}}; err != nil ||
		!slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
}
