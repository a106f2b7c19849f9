package syncer_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestLateAcquireAfterTakingBack takes back the newest event of a key before or after it is
// flushed, and the store may lose the flushed counts. A window further back is as full as before,
// for this counter and for one that starts with the store's counts.
func TestLateAcquireAfterTakingBack(t *testing.T) {
	for name, flushes := range map[string]bool{"at once": false, "after a flush": true} {
		t.Run(name, func(t *testing.T) { testLateAcquireAfterTakingBack(t, flushes, false) })
		t.Run(name+", and a loss", func(t *testing.T) {
			testLateAcquireAfterTakingBack(t, flushes, true)
		})
	}
}

func testLateAcquireAfterTakingBack(t *testing.T, flushes, loses bool) {
	store, one := embedded.New(embedded.Options{}), twotier.Placement{Partitions: 1}
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one})
	l := limits(10_000, 10)
	acquire(t, c, "k", 10, 0, l)
	flush(t, c)
	// The next event pushes out earlier buckets; this is the remainder of the finest level.
	clk.set(t0 + 50_000)
	add(t, c, "k", 1, 0)
	flush(t, c)
	clk.set(t0 + 100_000)
	add(t, c, "k", 1, 0)
	if flushes {
		flush(t, c)
	}
	add(t, c, "k", -1, 0)
	flush(t, c)
	if loses {
		store.Flush()
		add(t, c, "another", 1, 0) // this tells the counter of the loss
		flush(t, c)
	}
	for _, counter := range []*syncer.Counter{c,
		open(t, syncer.Options{Store: store, Now: clk.Now, Placement: one})} {
		if acquire(t, counter, "k", 1, t0, l).Allowed {
			t.Error("an 11th event was admitted at a moment whose window holds 10")
		}
	}
}
