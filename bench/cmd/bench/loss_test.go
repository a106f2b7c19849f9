package main

import (
	"testing"
	"time"

	"twotier.dev/twotier/bench/rival"
)

func TestAcknowledgedByRedisIsNotLost(t *testing.T) {
	env, remove, err := rival.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remove() }()
	o := Loss{Rate: 2000, Before: 500 * time.Millisecond}
	for _, s := range settings() {
		if s.bound > 0 && s.interval < time.Second {
			continue
		}
		k, err := o.kill(t.Context(), env, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", k)
		if k.Acknowledged == 0 || s.bound == 0 && k.Lost > 0 {
			t.Errorf("%+v", k)
		}
	}
}
