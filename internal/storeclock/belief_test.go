package storeclock_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/internal/storeclock"
)

const day = 24 * time.Hour

// reading is a series of measurements: count of them, every apart, with the same clocks.
type reading struct {
	count      int
	every      time.Duration
	store      time.Duration // ahead of the monotonic clock
	creep      time.Duration // how much farther with each
	wall       time.Duration
	want       time.Duration // followed after the last
	wantDoubt  storeclock.Doubt
	wantBefore storeclock.Doubt // after all but the last
	wantAnew   bool
}

const s = time.Second

// TestBelief makes the store's clock step, creep, lie and come back.
func TestBelief(t *testing.T) {
	for name, readings := range map[string][]reading{
		"the first is taken at once": {{count: 1, store: 3 * day, want: 3 * day}},
		"noise and small steps are followed": {{count: 9, every: 10 * s,
			store: 900 * time.Millisecond, want: 900 * time.Millisecond}},
		"a day forward, for 12 s": {{count: 1},
			{count: 12, every: s, store: day, wantDoubt: storeclock.DoubtStep,
				wantBefore: storeclock.DoubtStep}, {count: 1, every: s}},
		"a day back, for 12 s": {{count: 1},
			{count: 12, every: s, store: -day, wantDoubt: storeclock.DoubtStep,
				wantBefore: storeclock.DoubtStep}, {count: 1, every: s}},
		"a minute is not yet more than a minute": {{count: 1},
			{count: 61, every: s, store: 5 * s, wantDoubt: storeclock.DoubtStep,
				wantBefore: storeclock.DoubtStep}},
		"more than a minute is": {{count: 1},
			{count: 62, every: s, store: 5 * s, want: 5 * s, wantBefore: storeclock.DoubtStep}},
		"back as well": {{count: 1},
			{count: 62, every: s, store: -5 * s, want: -5 * s, wantBefore: storeclock.DoubtStep}},
		"four that agree are too few": {{count: 1},
			{count: 4, every: 30 * s, store: 5 * s, wantDoubt: storeclock.DoubtStep,
				wantBefore: storeclock.DoubtStep}},
		"five are enough": {{count: 1},
			{count: 5, every: 30 * s, store: 5 * s, want: 5 * s, wantBefore: storeclock.DoubtStep}},
		"those that differ never agree": {{count: 1},
			{count: 600, every: s, store: 5 * s, creep: 300 * time.Millisecond,
				wantDoubt: storeclock.DoubtStep, wantBefore: storeclock.DoubtStep}},
		"a clock that drifts is followed": {{count: 10_000, every: 10 * s,
			creep: 4 * time.Millisecond, want: 39_996 * time.Millisecond}},
		"one that runs away is not": {{count: 1},
			{count: 300, every: 10 * s, creep: 100 * time.Millisecond,
				want: 1000 * time.Millisecond, wantDoubt: storeclock.DoubtStep,
				wantBefore: storeclock.DoubtStep}},
		"a day forward for ever is too far": {{count: 1},
			{count: 3600, every: s, store: day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar}},
		"and forgotten when it is over": {{count: 1},
			{count: 99, every: s, store: day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar}, {count: 1, every: s}},
		"a day back for ever is too far": {{count: 1},
			{count: 3600, every: s, store: -day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar}},
		"forward, where the wall clock is": {{count: 1},
			{count: 99, every: s, store: day, wall: day, want: day}},
		"forward, where the wall clock always was": {{count: 1, store: -day, want: -day},
			{count: 62, every: s, want: 0, wantBefore: storeclock.DoubtStep, wantAnew: true}},
		"back, where the wall clock always was": {{count: 1, store: day, want: day},
			{count: 62, every: s, want: 0, wantBefore: storeclock.DoubtStep, wantAnew: true},
			{count: 9, every: s}},
		"back, but not to where the wall clock is": {{count: 1, store: 3 * day, want: 3 * day},
			{count: 99, every: s, store: day, want: 3 * day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar}},
		"back a second time: only once": {{count: 1, store: day, want: day},
			{count: 62, every: s, wantAnew: true},
			{count: 99, every: s, store: -day, wall: -day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar}},
		"back, but the wall clock has been right meanwhile": {
			{count: 1, wall: -day}, {count: 1, every: 10 * s},
			{count: 99, every: s, store: -day, wall: -day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar}},
		"back, where the wall clock is: stretches": {{count: 1},
			{count: 99, every: s, store: -day, wall: -day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar}},
		"it is too far, then somewhere else": {{count: 1},
			{count: 99, every: s, store: day, wantDoubt: storeclock.DoubtFar,
				wantBefore: storeclock.DoubtFar},
			{count: 1, every: s, store: 2 * day, wantDoubt: storeclock.DoubtStep}},
		"ten minutes can be followed, either way": {{count: 1},
			{count: 62, every: s, store: -10 * time.Minute, want: -10 * time.Minute,
				wantBefore: storeclock.DoubtStep}},
		"what was followed before goes on meanwhile": {{count: 1, store: 7 * s, want: 7 * s},
			{count: 9, every: s, store: day, want: 7 * s, wantDoubt: storeclock.DoubtStep,
				wantBefore: storeclock.DoubtStep}},
	} {
		t.Run(name, func(t *testing.T) {
			var b storeclock.Belief
			var at time.Duration
			for i, r := range readings {
				var ahead time.Duration
				var anew bool
				for k := range r.count {
					if doubt, _ := b.Doubt(); k == r.count-1 && r.wantBefore != "" &&
						doubt != r.wantBefore {
						t.Errorf("readings %d: doubt %q before the last, want %q", i, doubt,
							r.wantBefore)
					}
					at += r.every
					ahead,
						anew = b.Accept(storeclock.Measurement{At: at,
						Ahead: r.store + time.Duration(k)*r.creep, Wall: r.wall})
				}
				if doubt, off := b.Doubt(); ahead != r.want || doubt != r.wantDoubt ||
					(off != 0) != (doubt != "") {
					t.Errorf("readings %d: %v is followed, doubt %q of %v, want %v and %q", i,
						ahead, doubt, off, r.want, r.wantDoubt)
				}
				if anew != r.wantAnew {
					t.Errorf("readings %d: the clock is to be set: %v", i, anew)
				}
			}
		})
	}
}
