package syncer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestExpiredCounts counts for longer than the ladder covers, and then stops. Events that left
// every window are dropped from memory. Flushed ones are no loss. Ones that the store never
// accepted are counted as dropped, each of them once.
func TestExpiredCounts(t *testing.T) {
	for name, interval := range map[string]time.Duration{"flushed": time.Millisecond,
		"pending": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testExpired(t, interval) })
		})
	}
}

func testExpired(t *testing.T, interval time.Duration) {
	l, err := leaparray.NewLadder(2, leaparray.Level{Width: time.Second, Count: 3},
		leaparray.Level{Width: 2 * time.Second, Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, syncer.Options{Store: embedded.New(embedded.Options{}), FlushInterval: interval,
		Placement:  twotier.Placement{Partitions: 1},
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: l}}})
	sent := int64(0)
	check := func() (held int64) {
		t.Helper()
		h, want := c.Held(nil, []byte("k")), int64(0)
		if interval == time.Hour {
			want = sent - sum(h.Pending)
		}
		if n := c.Stats().DroppedExpiredTotal; n != want {
			t.Fatalf("of %d events %d were dropped, want %d", sent, n, want)
		}
		return sum(h.Pending) + sum(h.Synced)
	}
	for range 300 {
		add(t, c, "k", 3, 0)
		sent += 3
		time.Sleep(700 * time.Millisecond)
		check()
	}
	if held := check(); held == sent {
		t.Errorf("memory still holds all of %d events", sent)
	}
	time.Sleep(time.Minute)
	if held := check(); held > 0 {
		t.Errorf("memory still holds %d events that no window can reach", held)
	}
}

func sum(held map[leaparray.Stretch]int64) (n int64) {
	for _, in := range held {
		n += in
	}
	return n
}
