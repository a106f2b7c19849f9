package main

import (
	"testing"
	"time"
)

func TestPairSeesAndOvershoots(t *testing.T) {
	p, err := startPair(t.Context(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.stand.Close(); err != nil {
			t.Error(err)
		}
	}()
	redis, other, err := p.staleness(t.Context(), 5)
	if err != nil || redis.Max <= 0 || other.Max <= 0 {
		t.Errorf("%+v, %+v, %v", redis, other, err)
	}
	over, err := p.overshoot(t.Context())
	t.Logf("%+v, %+v, overshoot %d", redis, other, over)
	// Who hears nothing of the other admits as much as the limit again.
	if err != nil || over >= overshootLimit {
		t.Errorf("overshoot %d, %v", over, err)
	}
}
