package main

import (
	"testing"

	"twotier.dev/twotier/bench/limiter"
)

func TestRivalsHoldWhatWasCounted(t *testing.T) {
	var r MemoryResult
	names := append(limiter.ScriptNames(), "twotier")
	if err := r.measure(t.Context(), "thirty", "30 events", 200, names...); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows)+len(r.Missing) != len(names) {
		t.Errorf("%d rows, %v missing", len(r.Rows), r.Missing)
	}
	for _, row := range r.Rows {
		t.Logf("%s: %.0f bytes, %.2f keys for each of %d", row.Way, row.Redis, row.RedisKeys,
			row.Keys)
		// Just after midnight all events may lie in calendar windows that are over, of which
		// nothing is kept.
		if row.Way != "incr-lua" && (row.Redis < 30 || row.RedisKeys < 0.9) || row.Events != 30 {
			t.Errorf("%+v", row)
		}
	}
}
