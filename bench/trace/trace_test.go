package trace_test

import (
	"reflect"
	"slices"
	"testing"

	"twotier/bench/trace"
)

func TestKeysRepeat(t *testing.T) {
	for _, name := range []string{"same", "uniform", "zipf", "distinct"} {
		a, err := trace.NewKeys(name, 7, 1000)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := trace.NewKeys(name, 7, 1000)
		seen := make(map[uint64]int)
		for range 10_000 {
			k := a()
			if k != b() {
				t.Fatalf("%s: the same seed gave different keys", name)
			}
			seen[k]++
		}
		t.Logf("%s: %d keys, the first one %d times", name, len(seen), seen[0])
	}
	if _, err := trace.NewKeys("none", 1, 1); err == nil {
		t.Error("an unknown name was taken")
	}
}

func TestMessages(t *testing.T) {
	const hour = 3_600_000
	m := trace.Messages{Seed: 3, From: 480_000 * hour, To: 480_024 * hour, Receivers: 200}
	events := m.Events()
	if !reflect.DeepEqual(events, m.Events()) {
		t.Fatal("the same seed gave different events")
	}
	if !slices.IsSortedFunc(events, func(a, b trace.Event) int { return int(a.TS - b.TS) }) {
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
