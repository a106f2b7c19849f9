package syncer_test

import (
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
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
