package layout_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// TestListsHoldEachMoment lists random moments, some far apart and some again and again, and leaves
// some out: the fields have exactly the others, none has more than 64 bytes, and the open one says
// how many moments the rest has.
func TestListsHoldEachMoment(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 21))
	ignore := func(string) {}
	for range 200 {
		lists, want := layout.Lists{}, map[int64]int64{}
		for range dice.IntN(120) {
			at := 1_763_000_000_000 + dice.Int64N(5)*dice.Int64N(1<<dice.IntN(26))
			n := 1 + dice.Int64N(255)
			lists.Push(at, n, ignore)
			want[at] += n
		}
		if dice.IntN(2) == 0 {
			some := dice.Int64N(3)
			lists.Remove(func(at int64) bool { return at%3 == some }, ignore)
			maps.DeleteFunc(want, func(at, _ int64) bool { return at%3 == some })
		}
		lists.Finish(ignore)
		checkLists(t, lists, want)
	}
}

func checkLists(t *testing.T, lists layout.Lists, want map[int64]int64) {
	t.Helper()
	var flat []any
	others, listed := 0, 0
	for name, value := range lists {
		flat = append(flat, name, value)
		if len(value) > 64 || !isMoments(name, value) {
			t.Errorf("field %q has %q", name, value)
		}
		if name != layout.OpenField {
			others += len(value) / 4
		} else {
			listed = int(value[6])<<8 | int(value[7])
		}
	}
	got := map[int64]int64{}
	for _, b := range layout.ParseBuckets(flat, nil) {
		got[b.Start] = b.N
	}
	if !maps.Equal(got, want) || listed != others {
		t.Fatalf("%v, want %v; %d moments are said to be in other fields, %d are", got, want,
			listed, others)
	}
}

// TestMergeMoments sums a moment that is listed and has a field of its own, which may be negative.
func TestMergeMoments(t *testing.T) {
	t.Parallel()
	at := func(start, width, n int64) syncer.Bucket {
		return syncer.Bucket{Stretch: leaparray.Stretch{Start: start, Width: width}, N: n}
	}
	got := layout.MergeMoments([]syncer.Bucket{at(7, 1, 2), at(5, 1, 3), at(0, 10, 1), at(7, 1, -2),
		at(5, 1, 4), at(9, 1, syncer.NoCount), at(9, 1, 1), at(0, 10, 0)})
	want := []syncer.Bucket{at(0, 10, 1), at(0, 10, 0), at(5, 1, 7), at(9, 1, syncer.NoCount)}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func isMoments(name, value string) bool {
	_, ok := layout.ParseMoments(name, value)
	return ok
}
