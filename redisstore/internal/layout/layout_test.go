package layout_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// TestFields reads the names of cells, none of which needs more than 15 digits.
func TestFields(t *testing.T) {
	t.Parallel()
	minute := leaparray.Stretch{Start: 29_383_940 * 60_000, Width: 60_000}
	year := 366 * 24 * time.Hour.Milliseconds()
	for want, s := range map[string]leaparray.Stretch{
		"1763000000123":   leaparray.Moment(1_763_000_000_123),
		"-29383940600005": minute,
		"-35260000000502": {Start: 35_260_000_000 * 50, Width: 50},
		"-55316224000001": {Start: 55 * year, Width: year},
		"-600005":         {Start: 0, Width: 60_000},
	} {
		if got := layout.Field(s); got != want {
			t.Errorf("%v is %s, want %s", s, got, want)
		}
	}
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 12))
	for range 10_000 {
		width := 50 + dice.Int64N([]int64{1000, 1_000_000, year - 50}[dice.IntN(3)])
		s := leaparray.Stretch{Start: dice.Int64N(1e13/width) * width, Width: width}
		list := layout.ParseBuckets([]any{layout.Field(s), "3"}, nil)
		if len(list) != 1 || list[0] != (syncer.Bucket{Stretch: s, N: 3}) ||
			len(layout.Field(s)) > 16 {
			t.Fatalf("%v is %s, which is %v", s, layout.Field(s), list)
		}
	}
	for _, other := range []string{"", "e", "x", "1.5", "-1", "-10", "-12", "-99995", "-90",
		"1000000000000000", "-1000000000000000", "99999999999999999999"} {
		if list := layout.ParseBuckets([]any{other, "1"}, nil); len(list) != 0 {
			t.Errorf("%q is %v", other, list)
		}
	}
	if list := layout.ParseBuckets([]any{"5", "x", "6", "7"}, nil); !slices.Equal(list,
		[]syncer.Bucket{{Stretch: leaparray.Moment(5), N: syncer.NoCount},
			{Stretch: leaparray.Moment(6), N: 7}}) {
		t.Errorf("a value that is no count: %v", list)
	}
}
