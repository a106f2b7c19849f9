package simtest

import (
	"testing"
	"time"
)

// TestAResetKeepsWhatMayComeLater records doubt about one count whose deadline is before a reset,
// and about one whose deadline is after it: only the second may remain after the reset.
func TestAResetKeepsWhatMayComeLater(t *testing.T) {
	l, asked := &ledger{keys: map[string]*account{}}, time.Now()
	l.acknowledge("k", 8, true)
	l.doubt("k", 1, asked.Add(-time.Millisecond))
	l.doubt("k", 2, asked.Add(time.Millisecond))
	l.reset("k", asked, 0, false)
	if a := l.copy("k"); a.least() != 0 || a.most() != 2 {
		t.Errorf("%d to %d may be left, want 0 to 2", a.least(), a.most())
	}
	l.reset("k", asked.Add(time.Second), 0, false)
	if a := l.copy("k"); a.most() != 0 {
		t.Errorf("up to %d may be left after another reset, want nothing", a.most())
	}
}
