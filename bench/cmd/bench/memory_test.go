package main

import (
	"errors"
	"testing"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
)

func TestRivalsHoldWhatWasCounted(t *testing.T) {
	o := Memory{One: 1000, Thirty: 200, Every: 50}
	for _, sh := range o.shapes() {
		for _, name := range limiter.ScriptNames() {
			r, err := sh.measure(t.Context(), rival.Env{}, name)
			if errors.Is(err, limiter.ErrNotAvailable) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %s: %.0f bytes, %.2f keys for each of %d", r.Way, r.Shape, r.Redis,
				r.RedisKeys, r.Keys)
			// Just after midnight all events may lie in calendar windows that are over, of which
			// nothing is kept.
			if r.Way != "incr fixed window" && (r.Redis < 30 || r.RedisKeys < 0.9) {
				t.Errorf("%+v", r)
			}
		}
	}
}
