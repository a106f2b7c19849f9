package main

import (
	"errors"
	"testing"
	"time"
)

func TestPairSeesAndOvershoots(t *testing.T) {
	pr, err := startPair(t.Context(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	p := &Point{IntervalMS: 20}
	err = errors.Join(p.staleness(t.Context(), pr, 5), p.overshoot(t.Context(), pr), pr.close())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", p)
	if p.Redis.Max <= 0 || p.Other.Max <= 0 || p.Overshoot < 0 || p.Overshoot >= overshootLimit {
		t.Errorf("%+v", p)
	}
}
