package hotkeys_test

import (
	"context"
	"testing"
	"time"

	"twotier.dev/twotier/internal/hotkeys"
)

// TestLeasesEndInTime accepts leases in time, after the owner gave up waiting for the response, and
// on a machine that is suspended meanwhile. The monotonic clock stands still then, which the test
// simulates by a time without a monotonic reading.
func TestLeasesEndInTime(t *testing.T) {
	now := time.Now()
	late, cancel := context.WithDeadline(t.Context(), now.Add(-2*time.Second))
	defer cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		then time.Time
		over bool
	}{
		{"fresh", t.Context(), now, false},
		{"nearly over", t.Context(), now.Add(hotkeys.LeaseTime - time.Millisecond), false},
		{"over", t.Context(), now.Add(hotkeys.LeaseTime), true},
		{"taken late", late, now.Add(hotkeys.LeaseTime - 2*time.Second), true},
		{"suspended", t.Context(), now.Round(0).Add(hotkeys.LeaseTime), true},
	} {
		if over := hotkeys.LeaseOver(test.ctx, now, test.then); over != test.over {
			t.Errorf("%s: over %v", test.name, over)
		}
	}
}
