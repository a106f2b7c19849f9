package retry_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/retry"
)

// TestBackoffDoubles makes attempts at 0, 1, 3, 7, 15 ms and so on, and none after the end of the
// time.
func TestBackoffDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []int64
		for b := retry.Within(80 * time.Millisecond); b.Next(t.Context()); {
			at = append(at, time.Since(began).Milliseconds())
		}
		if want := []int64{0, 1, 3, 7, 15, 31, 51, 71}; !slices.Equal(at, want) {
			t.Errorf("attempts at %v ms, want %v", at, want)
		}
	})
}

// TestWaitsEndWithTheirContext cancels a wait of an hour.
func TestWaitsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if retry.Pause(ctx, time.Hour) || time.Since(began) != time.Second {
			t.Errorf("waited for %v, want 1s and false", time.Since(began))
		}
		if retry.Within(time.Hour).Next(ctx) {
			t.Error("an attempt after the context was done")
		}
		if !retry.Pause(t.Context(), time.Second) {
			t.Error("a wait that nothing ended is reported as ended")
		}
	})
}
