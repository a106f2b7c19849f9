package main

import (
	"testing"
	"time"

	"twotier.dev/twotier/bench/rival"
)

// A counter that learns nothing from the other one admits the whole limit again.
const overshootLimit = 2000

// The measurements of Go benchmarks are found by name and unit.
func TestMicroMeasures(t *testing.T) {
	env, remove, err := rival.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remove() }()
	growth, r := Growth{MaxKeys: 10_000, Duration: 50 * time.Millisecond}, GrowthResult{}
	if err := r.keys(t.Context(), env, &growth); err != nil {
		t.Fatal(err)
	}
	if p := r.Keys[0]; len(r.Keys) != 1 || p.Keys != 10_000 || p.Floor <= 0 || p.Add <= 0 ||
		p.Acquire <= 0 || p.Resident == 0 || p.Counted <= 20 || p.Server <= 0 {
		t.Errorf("%+v", r.Keys)
	}
	p, err := (&Memory{PauseKeys: 50_000, Cycles: 3}).pauses(t.Context())
	if err != nil || p.BytesPerKey < 20 || p.Stops == 0 || p.P99 < p.P50 || p.Adds <= 0 ||
		p.CycleMS <= 0 {
		t.Errorf("%+v, %v", p, err)
	}
	interval := Interval{Rate: 1000, Duration: 100 * time.Millisecond, Samples: 3}
	at, err := interval.point(t.Context(), env, 10*time.Millisecond)
	if err != nil || at.Redis.Max <= 0 || at.Other.Median <= 0 || at.Overshoot >= overshootLimit {
		t.Errorf("%+v, %v", at, err)
	}
}
