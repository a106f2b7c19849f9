package syncer_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// TestBusyKeysDoNotHoardMemory grows keys bucket by bucket, each step in a larger block, and checks
// how much memory they keep.
func TestBusyKeysDoNotHoardMemory(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 8},
		FlushInterval: time.Millisecond})
	const keys = 200
	for step := range 120 {
		clk.set(t0 + int64(step)*960_000/2)
		for i := range keys {
			add(t, c, fmt.Sprint("busy-", i), 1, 0)
		}
		if step%4 == 0 {
			flush(t, c)
		}
	}
	flush(t, c)
	if per := c.Stats().MemoryBytes / keys; per > 4000 {
		t.Errorf("%d bytes a key with at most 100 live buckets", per)
	}
}
