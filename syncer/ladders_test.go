package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestHandoverBetweenLadders hands a partition back and forth between counters with different
// ladders, while both count, with many unacknowledged counts, and while time passes. The deciding
// counter knows all events of a window, give or take a bucket of either ladder, and the store has
// each of them once.
func TestHandoverBetweenLadders(t *testing.T) {
	eachSeed(t, 20, testHandoverBetweenLadders)
}

func testHandoverBetweenLadders(t *testing.T, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 3))
	store, clk := embedded.New(embedded.Options{}), &clock{now: t0}
	var counters [2]*syncer.Counter
	for i, l := range laddersOfAChange(t) {
		counters[i] = open(t, syncer.Options{Store: store, Now: clk.Now, NotOwner: i > 0,
			Placement: twotier.Placement{Partitions: 1}, FlushInterval: time.Hour,
			Namespaces: map[string]syncer.Namespace{"default": {Ladder: l}}})
	}
	const keys = 5
	var all [keys]int64
	var logs [keys]truth
	owner := 0
	for range 400 {
		clk.set(clk.Now() + dice.Int64N(400))
		switch dice.IntN(12) {
		case 0:
			hand(t, counters[owner], counters[1-owner], 0, 200+dice.IntN(2000))
			owner = 1 - owner
		case 1:
			flush(t, counters[owner])
		default:
			k, n := dice.IntN(keys), 1+dice.Int64N(3)
			add(t, counters[owner], fmt.Sprint("k", k), n, 0)
			all[k] += n
			logs[k].log = append(logs[k].log, event{ts: clk.Now(), n: n})
		}
		k := dice.IntN(keys)
		for _, window := range []int64{1000, 20_000, 3_600_000} {
			got := count(t, counters[owner], fmt.Sprint("k", k), window)
			sure, _, wider := logs[k].within(clk.Now(), window, 10_000)
			if got < sure || got > wider {
				t.Fatalf("k%d: %d within %d ms, want %d to %d", k, got, window, sure, wider)
			}
		}
	}
	flush(t, counters[owner])
	for k := range keys {
		sum := int64(0)
		for _, b := range store.Get(0, nil, fmt.Appendf(nil, "k%d", k)) {
			sum += b.N
		}
		if sum != all[k] {
			t.Errorf("k%d: the store has %d, want %d", k, sum, all[k])
		}
	}
	if err := counters[1-owner].Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// laddersOfAChange returns two ladders that have some widths in common, and keep different numbers
// of events exact.
func laddersOfAChange(t *testing.T) (both [2]*leaparray.Ladder) {
	t.Helper()
	for i, text := range []string{"1s x 20, 5s x 60, 1m x 60",
		"100ms x 50, 1s x 60, 10s x 60, 15m x 96"} {
		levels, err := config.ParseLadder(text)
		if err != nil {
			t.Fatal(err)
		}
		if both[i], err = leaparray.NewLadder(8*i, levels...); err != nil {
			t.Fatal(err)
		}
	}
	return both
}
