package syncer

import (
	"testing"
	"time"

	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// TestReadCost: a read costs the store the time that it took when the store was idle, even while
// other reads keep the store busy. If the store stays slower, the cost follows in time.
func TestReadCost(t *testing.T) {
	var c readCost
	const idle, waits = 100 * time.Microsecond, 50 * time.Millisecond
	if got := c.busyTime(10, 10*idle); got != 10*idle {
		t.Errorf("at first %v", got)
	}
	for i := range 32 {
		if got := c.busyTime(64, 64*idle+waits); got < 64*idle || got > 2*64*idle {
			t.Fatalf("the %d. read beside others: %v", i, got)
		}
	}
	if got := c.busyTime(1, idle/2); got != idle/2 {
		t.Errorf("a faster one: %v", got)
	}
	reads := 0
	for ; c.busyTime(1, 10*idle) < 10*idle; reads++ {
		if reads == 1000 {
			t.Fatal("it is not noticed that the store is slower than it was")
		}
	}
	if c.busyTime(0, time.Hour) != 0 {
		t.Error("nothing was read")
	}
}

// TestNothingWasThere: the answer that the store had nothing of a partition may arrive after the
// answer to another round. It holds if that one reported no change.
func TestNothingWasThere(t *testing.T) {
	for name, tt := range map[string]struct {
		before *rounds.Round // answered before
		want   bool
	}{
		"first of all":   {nil, true},
		"after another":  {&rounds.Round{Round: Round{Epoch: 7, Version: 1}}, true},
		"after a change": {&rounds.Round{Round: Round{Epoch: 7, Version: 2}}, false},
		"after a quiet one": {
			&rounds.Round{Round: Round{Epoch: 7, Version: 1, Quieted: 1}}, false},
		"of data that's gone": {&rounds.Round{Round: Round{Epoch: 8, Version: 1}}, false},
	} {
		b := newLedger(t)
		b.listing.state = listUnread
		b.keys.Stored = keys.NewStored(keys.NewListMemory(slab.New(1 << 22)))
		if tt.before != nil {
			b.store.SetReported(rounds.VersionOf(tt.before))
		}
		r := &rounds.Round{Round: Round{Epoch: 7, Version: 1, First: true}}
		b.store.ApplyLoadAnswer(rounds.VersionOf(r))
		b.recordEmptyStore(r)
		if tt.before == nil {
			b.applyAnswer(r)
		}
		if (b.listing.state == listComplete) != tt.want || b.keys.Stored.Kept != tt.want {
			t.Errorf("%s: %+v", name, b.listing)
		}
	}
}
