package drive_test

import (
	"reflect"
	"slices"
	"testing"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
)

func TestMessages(t *testing.T) {
	const hour = 3_600_000
	m := drive.Messages{Seed: 3, From: 480_000 * hour, To: 480_024 * hour, Receivers: 200}
	events := m.Events()
	if !reflect.DeepEqual(events, m.Events()) {
		t.Fatal("the same seed gave different events")
	}
	if !slices.IsSortedFunc(events, func(a, b limiter.Call) int { return int(a.TS - b.TS) }) {
		t.Error("out of order")
	}
	var perHour [24]int
	for _, e := range events {
		if e.TS < m.From || e.TS >= m.To || len(e.Checks) != 2 {
			t.Fatalf("event %+v", e)
		}
		perHour[(e.TS-m.From)/hour]++
	}
	if slices.Max(perHour[:]) < 3*slices.Min(perHour[:]) {
		t.Errorf("no day and night in %v", perHour)
	}
	t.Logf("%d events, per hour %v", len(events), perHour)
}
