package syncer

import (
	"testing"
	"time"
)

// TestBackoffDoublesUpToABound records failure after failure, and one more after a success.
func TestBackoffDoublesUpToABound(t *testing.T) {
	now := time.Unix(1000, 0)
	var b backoff
	if b.failing() || b.waiting(now) {
		t.Fatal("it waits before anything has failed")
	}
	for _, want := range []time.Duration{25, 50, 100, 200, 400, 800, 1600, 2000, 2000} {
		b.fail(now)
		pause := want * time.Millisecond
		if !b.waiting(now.Add(pause-1)) || b.waiting(now.Add(pause)) {
			t.Fatalf("after %d failures it waits until %v, want %v", b.failures, b.until,
				now.Add(pause))
		}
		now = now.Add(pause)
	}
	b.succeed()
	if b.failing() || b.waiting(now.Add(-time.Hour)) {
		t.Fatal("it waits although it has succeeded")
	}
	b.fail(now)
	if b.waiting(now.Add(firstBackoff)) {
		t.Fatalf("it waits until %v after the first failure since a success", b.until)
	}
}
