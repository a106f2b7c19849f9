package main

import "testing"

func TestEveryEventIsDecidedOnce(t *testing.T) {
	for _, name := range []string{"uniform", "zipf"} {
		all, err := events(name, 2000)
		if err != nil {
			t.Fatal(err)
		}
		rows, _, err := rivals(t.Context(), name, all)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.Work.Scripts != 2000 || r.Work.Commands < 2*r.Work.Scripts || r.Work.CPU <= 0 || r.Work.BytesIn == 0 {
				t.Errorf("%+v", r)
			}
			t.Logf("%s, %s: %.2f commands, %.1f µs an event", r.Way, r.Trace, float64(r.Work.Commands)/2000, r.Work.CPU/2000*1e6)
		}
	}
}
