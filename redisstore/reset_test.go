package redisstore_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestResetStaysResetWhenCountsAreRestored: Redis loses everything, and a key is reset in
// pure-Redis mode before a counter that knows the key notices. The counter restores everything but
// that key.
func TestResetStaysResetWhenCountsAreRestored(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for name, first := range map[string]func(t *testing.T, d *redisstore.Direct){
		"who resets draws the epoch": func(*testing.T, *redisstore.Direct) {},
		"another has drawn the epoch": func(t *testing.T, d *redisstore.Direct) {
			add(t, d, "late", 1, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			flushAll(t, srv)
			one, clk := twotier.Placement{Partitions: 1}, newClock(t0)
			s := open(t, redisstore.Options{URL: srv.URL(), Placement: one})
			d := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
			c := openCounter(t, syncer.Options{Store: s, Now: clk.now.Load, Placement: one})
			add(t, c, "reset", 7, 0)
			add(t, c, "kept", 7, 0)
			flush(t, c)
			flushAll(t, srv)
			first(t, d)
			if err := d.Forget(t.Context(), nil, []byte("reset")); err != nil {
				t.Fatal(err)
			}
			add(t, c, "new", 1, 0) // with this round the counter learns of the loss
			flush(t, c)
			for key, want := range map[string]int64{"reset": 0, "kept": 7, "new": 1} {
				if inRedis, inMemory := count(t, d, key, 60_000),
					count(t, c, key, 60_000); inRedis != want || inMemory != want {
					t.Errorf("%s: %d in Redis, %d in memory, want %d", key, inRedis, inMemory, want)
				}
			}
		})
	}
}
