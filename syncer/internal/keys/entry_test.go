package keys

import (
	"testing"

	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/leaparray"
)

// TestWhatWasUsedLaterIsNotIdle: an operation reads the time, and another one that is a second
// later uses a key first. The key must not look as if it had been idle for months.
func TestWhatWasUsedLaterIsNotIdle(t *testing.T) {
	for _, c := range []struct{ used, sec, want uint32 }{
		{100, 100, 0}, {100, 101, 1}, {100, 99, 0}, {100, 100 + 90*86_400, 90 * 86_400},
		{low24, 0, 1}, {0, low24, 0}, // the seconds wrap around
	} {
		e := make(Entry, entryHead)
		e.SetLastUsed(c.used)
		if got := e.IdleSeconds(c.sec); got != c.want {
			t.Errorf("used at %d, idle for %d at %d, want %d", c.used, got, c.sec, c.want)
		}
	}
}

// TestKeysInUseStay evicts a key that is idle rather than one that was used after the present.
func TestKeysInUseStay(t *testing.T) {
	names := NewNamespaces()
	names.Add(&Namespace{Ladder: leaparray.Default()})
	s := New(slab.New(1<<20), &names, Clock{Now: func() int64 { return 0 }})
	s.Stored = &StoredHashes{}
	hash := names.Hash(nil, []byte("used"))
	s.EntryAt(s.InsertCold(hash, nil, []byte("used"))).SetLastUsed(100)
	s.EntryAt(s.InsertCold(names.Hash(nil, []byte("idle")), nil, []byte("idle"))).SetLastUsed(90)
	if !s.EvictOne(99, AnySpace) {
		t.Fatal("nothing was evicted")
	}
	if s.Find(hash, nil, []byte("used")) == 0 {
		t.Error("the key in use had to go")
	}
}
