package main

import "testing"

func TestVerdict(t *testing.T) {
	atLeast, atMost := Goal{Want: 10, Least: true}, Goal{Want: 2}
	for _, c := range []struct {
		goal   Goal
		values []float64
		want   string
	}{
		{atLeast, nil, "not measured"}, {atLeast, []float64{10, 11}, "met"}, {atLeast, []float64{9, 11}, "partly: 1 of 2"},
		{atLeast, []float64{9.9}, "missed"}, {atMost, []float64{2, 1}, "met"}, {atMost, []float64{2.1}, "missed"},
	} {
		g := c.goal
		for _, v := range c.values {
			g.add("", v)
		}
		if got := g.Verdict(); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
}
