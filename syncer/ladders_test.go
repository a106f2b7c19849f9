package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestHandoverBetweenLadders hands a partition back and forth between a counter and one with a
// finer and a coarser level besides, while both count, and with much that the store has not
// acknowledged.
// What both count by is exact, for every window; what only one counts by has what it has counted.
func TestHandoverBetweenLadders(t *testing.T) {
	eachSeed(t, 20, testHandoverBetweenLadders)
}

func testHandoverBetweenLadders(t *testing.T, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 3))
	few, more := laddersOfAChange(t)
	store, clk := embedded.New(embedded.Options{}), &clock{now: t0}
	var counters [2]*syncer.Counter
	for i, l := range []*leaparray.Ladder{few, more} {
		counters[i] = open(t, syncer.Options{Store: store, Now: clk.Now, NotOwner: i > 0,
			Placement: syncer.Placement{Partitions: 1}, FlushInterval: time.Hour,
			Namespaces: map[string]syncer.Namespace{"default": {Ladder: l}}})
	}
	const keys = 5
	var all, fine [keys]int64
	owner := 0
	for range 300 {
		switch dice.IntN(12) {
		case 0:
			hand(t, counters[owner], counters[1-owner], 0, 200+dice.IntN(2000))
			owner = 1 - owner
		case 1:
			flush(t, counters[owner])
		default:
			k, n := dice.IntN(keys), 1+dice.Int64N(3)
			add(t, counters[owner], fmt.Sprint("k", k), n, 0)
			if all[k] += n; owner == 1 {
				fine[k] += n
			}
		}
		k := dice.IntN(keys)
		for _, window := range []int64{60_000, 3_600_000} {
			if got := count(t, counters[owner], fmt.Sprint("k", k), window); got != all[k] {
				t.Fatalf("k%d: %d within %d ms, counted were %d", k, got, window, all[k])
			}
		}
	}
	flush(t, counters[owner])
	for k := range keys {
		var sums [leaparray.MaxIDs]int64
		for _, b := range store.Get(0, nil, fmt.Appendf(nil, "k%d", k)) {
			sums[b.Level] += b.N
		}
		if want := [leaparray.MaxIDs]int64{all[k], all[k], fine[k], fine[k]}; sums != want {
			t.Errorf("k%d: the store has %v, want %v", k, sums, want)
		}
	}
	if err := counters[1-owner].Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// laddersOfAChange returns a ladder of seconds and minutes, and one with two levels more that not
// all counters have.
func laddersOfAChange(t *testing.T) (few, more *leaparray.Ladder) {
	t.Helper()
	few, err := leaparray.ParseLadder("1s x 60, 1m x 60")
	if err != nil {
		t.Fatal(err)
	}
	more, err = leaparray.ParseLadder("100ms x 50, 1s x 60, 1m x 60, 15m x 96")
	if err != nil {
		t.Fatal(err)
	}
	stored := &leaparray.StoredLevels{ID: [leaparray.MaxLevels]uint8{2, 0, 1, 3},
		Reach: [leaparray.MaxLevels]int64{0, 60_000, 3_600_000, 0}}
	return few, more.StoredAs(func() *leaparray.StoredLevels { return stored })
}
