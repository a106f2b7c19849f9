package syncer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// TestAnIdleCounterRests: while nothing is counted, the clock makes nothing due, except to verify
// that the store still has everything. Later counts are still flushed in time.
func TestAnIdleCounterRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := embedded.New(embedded.Options{})
		c := open(t, syncer.Options{Store: store, Placement: twotier.Placement{Partitions: 64},
			FlushInterval: 100 * time.Millisecond, VerifyInterval: 5 * time.Second})
		for range 3 {
			for i := range 100 {
				add(t, c, fmt.Sprint("k", i), 1, 0)
			}
			time.Sleep(120 * time.Millisecond)
			if n := c.Stats().PendingBuckets; n > 0 {
				t.Errorf("%d buckets are pending after a flush interval", n)
			}
			time.Sleep(time.Second)
			if n := c.ShiftsAwake(); n > 0 {
				t.Errorf("%d shifts are awake though nothing is counted", n)
			}
			time.Sleep(time.Minute)
		}
	})
}
