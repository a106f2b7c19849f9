package room_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/syncer/internal/room"
)

// TestPace follows the pace of a store in the bounds of a room: the number of keys that the store
// accepts in two seconds for known keys, and in one for new ones.
func TestPace(t *testing.T) {
	m := room.New(32*time.Second, 5120*time.Millisecond, func() {})
	known := func() int64 { return m.Stats().Most[room.KnownKey] }
	isNew := func() int64 { return m.Stats().Most[room.NewKey] }
	if n := known(); n != 200 {
		t.Errorf("at a guess of 100 a second %d in two", n)
	}
	for range 200 {
		m.Record(1000, 20*time.Millisecond)
	}
	if n := known(); n < 95_000 || n > 100_000 {
		t.Errorf("at 50,000 a second %d in two", n)
	}
	for range 200 {
		m.Record(0, time.Second)
	}
	if n := known(); n < 95_000 {
		t.Errorf("after exchanges that say nothing of the pace: %d in two seconds", n)
	}
	m.Record(2000, time.Second)
	if n := isNew(); n > 30_000 {
		t.Errorf("after a second at 2,000: %d", n)
	}
	m.Record(1, time.Hour)
	if n := isNew(); n != 1 {
		t.Errorf("a store that stands still: %d, want 1", n)
	}
}
