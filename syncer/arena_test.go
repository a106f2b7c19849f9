package syncer_test

import (
	"fmt"
	"testing"
	"time"

	"twotier/leaparray"
	"twotier/syncer"
)

// TestLaddersWiderThanAChunk has counters of more words than a chunk of the arena: what is left of such a chunk can't be
// told from the next one.
func TestLaddersWiderThanAChunk(t *testing.T) {
	for _, buckets := range []int{4050, 4090, 4091, 4092, 4093, 4096} {
		l, err := leaparray.NewLadder(leaparray.Level{Width: time.Second, Count: buckets})
		if err != nil {
			t.Fatal(err)
		}
		clk := &clock{now: t0}
		c := open(t, syncer.Options{Now: clk.Now, FlushInterval: time.Hour, Placement: syncer.Placement{Partitions: 1},
			Namespaces: map[string]syncer.Namespace{syncer.DefaultNamespace: {Ladder: l}}})
		const keys = 8
		for i := range keys {
			key := fmt.Sprint("k", i)
			add(t, c, key, 1<<40, 0) // too much for a sparse bucket
			for j := range 30 {
				add(t, c, fmt.Sprint("small", i, j), 1, 0)
			}
		}
		for i := range keys {
			if got := count(t, c, fmt.Sprint("k", i), int64(buckets)*1000); got != 1<<40 {
				t.Errorf("%d buckets: k%d counts %d", buckets, i, got)
			}
			for j := range 30 {
				if got := count(t, c, fmt.Sprint("small", i, j), int64(buckets)*1000); got != 1 {
					t.Errorf("%d buckets: small%d%d counts %d", buckets, i, j, got)
				}
			}
		}
	}
}
