package rounds

import (
	"testing"
	"time"
)

// TestBackoffDoublesUpToABound records failure after failure, and one more after a success.
func TestBackoffDoublesUpToABound(t *testing.T) {
	now := time.Unix(1000, 0)
	var b Backoff
	if b.Failing() || b.Waiting(now) {
		t.Fatal("it waits before anything has failed")
	}
	for _, want := range []time.Duration{25, 50, 100, 200, 400, 800, 1600, 2000, 2000} {
		b.Fail(now)
		pause := want * time.Millisecond
		if !b.Waiting(now.Add(pause-1)) || b.Waiting(now.Add(pause)) {
			t.Fatalf("after %d failures it waits until %v, want %v", b.Failures, b.Until,
				now.Add(pause))
		}
		now = now.Add(pause)
	}
	b.Succeed()
	if b.Failing() || b.Waiting(now.Add(-time.Hour)) {
		t.Fatal("it waits although it has succeeded")
	}
	b.Fail(now)
	if b.Waiting(now.Add(FirstBackoff)) {
		t.Fatalf("it waits until %v after the first failure since a success", b.Until)
	}
}
