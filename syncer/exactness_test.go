package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestExactByNeed counts events of a key. Whether they keep their millisecond depends on the limits
// that were asked of it before, also by another process.
func TestExactByNeed(t *testing.T) {
	small, large := limits(60_000, 15), limits(60_000, 1000)
	ask := func(l []twotier.Limit, n int64, dry bool) twotier.Op {
		return twotier.Op{Kind: twotier.Acquire, DryRun: dry,
			Checks: []twotier.Check{{Key: []byte("k"), N: n, Limits: l}}}
	}
	for _, test := range []struct {
		name  string
		asked []twotier.Op
		width int64
	}{
		{"no limit", nil, 100},
		{"a large limit", []twotier.Op{ask(large, 1, false)}, 100},
		{"a small limit", []twotier.Op{ask(small, 1, false)}, 1},
		{"a small limit that refuses", []twotier.Op{ask(small, 16, false)}, 1},
		{"a small limit in a dry run", []twotier.Op{ask(small, 1, true)}, 1},
		{"a large limit after a small one",
			[]twotier.Op{ask(small, 1, false), ask(large, 1, false)}, 1},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, ", restarts ", restarts), func(t *testing.T) {
				clk, store := &clock{now: t0 + 99}, embedded.New(embedded.Options{})
				open := func() *syncer.Counter {
					return open(t, syncer.Options{Now: clk.Now, Store: store})
				}
				c := open()
				add(t, c, "k", 1, 0)
				flush(t, c)
				for i := range test.asked {
					do(t, c, test.asked[i])
				}
				clk.set(t0 + 1000)
				add(t, c, "k", 1, 0)
				flush(t, c)
				if restarts {
					c = open()
				}
				clk.set(t0 + 1150)
				add(t, c, "k", 1, 0) // of a key that may be unknown
				flush(t, c)
				clk.set(t0 + 1250)
				add(t, c, "k", 1, 0)
				if got := widthAt(c, t0+1250); got != test.width {
					t.Errorf("a cell of %d ms, want %d", got, test.width)
				}
			})
		}
	}
}

// widthAt returns the width of the cell of the key k that has the event of a moment.
func widthAt(c *syncer.Counter, at int64) (width int64) {
	held := c.Held(nil, []byte("k"))
	for _, cells := range []map[leaparray.Stretch]int64{held.Synced, held.Pending} {
		for s := range cells {
			if s.Start <= at && at < s.End() {
				width = s.Width
			}
		}
	}
	return width
}

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
