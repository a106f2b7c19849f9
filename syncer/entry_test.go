package syncer

import "testing"

// TestWhatWasUsedLaterIsNotIdle: an operation reads the time, and another one that is a second
// later uses a key first. The key must not look as if it had been idle for months.
func TestWhatWasUsedLaterIsNotIdle(t *testing.T) {
	for _, c := range []struct{ used, sec, want uint32 }{
		{100, 100, 0}, {100, 101, 1}, {100, 99, 0}, {100, 100 + 90*86_400, 90 * 86_400},
		{low24, 0, 1}, {0, low24, 0}, // the seconds wrap around
	} {
		e := make(entry, entryHead)
		e.setUsed(c.used)
		if got := e.idle(c.sec); got != c.want {
			t.Errorf("used at %d, idle for %d at %d, want %d", c.used, got, c.sec, c.want)
		}
	}
	b := newLedger(t)
	b.at("used").setUsed(100)
	b.at("idle").setUsed(90)
	if !b.keys.evictOne(99, anySpace) {
		t.Fatal("nothing was evicted")
	}
	if b.keys.find(b.keys.names.hash(nil, []byte("used")), nil, []byte("used")) == 0 {
		t.Error("the key in use had to go")
	}
}
