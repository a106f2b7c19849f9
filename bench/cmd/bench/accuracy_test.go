package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAccuracy checks that over an hour of each shape the ladders' bounds hold and they admit no
// more than the limit, that the exact log is exact, and that the judge notices the errors of the
// others.
func TestAccuracy(t *testing.T) {
	const hour, day, window, limit = 3_600_000, 24 * 3_600_000, 97_000, 97
	all, err := methods()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range shapes() {
		draw := rand.New(rand.NewPCG(1, uint64(i)))
		times := s.times(draw, hour)
		var moments []int64
		for k := range times {
			times[k] += 20_000 * day
		}
		for range 500 {
			moments = append(moments, 20_000*day+window+draw.Int64N(hour-window))
		}
		slices.Sort(moments)
		if n := len(times); n < perSecond*3600/2 || n > perSecond*3600*2 ||
			!slices.IsSorted(times) {
			t.Errorf("%s: %d events in an hour", s.name, n)
		}
		for _, m := range all {
			r, ok := readErrors(m, window, times, moments)
			ladder := slices.ContainsFunc(ladders(), func(l LadderOf) bool {
				return l.Name == m.Name
			})
			if ok && (r.Outside > 0 || r.Bounds >= 0 != ladder || r.Mean > r.P99 ||
				r.P99 > r.Most || r.Truth <= 0 || m.Name == "fixed window" && r.Mean < 0.2) {
				t.Errorf("%s: %+v", s.name, r)
			}
			d := decide(m, window, limit, times)
			over := m.Name == "fixed window" || m.Name == "token bucket (GCRA)"
			if ladder && (d.Over > 0 || d.Admitted == 0) || over && d.Over == 0 ||
				d.Events != len(times) {
				t.Errorf("%s: %+v", s.name, d.Tally)
			}
		}
		d := decide(exactLog(), window, limit, times)
		if d.Over > 0 || d.Early > 0 || d.Admitted == 0 {
			t.Errorf("%s: %+v", s.name, d.Tally)
		}
	}
}
