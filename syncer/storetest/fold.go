package storetest

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// fold moves the cells that are due to fold. The sum stays the same, except for cells that have
// left every window.
func (c content) fold(l *leaparray.Ladder, now, exactFrom int64) {
	moved := content{}
	for _, f := range l.ListFolds(cellsOf(c), now, exactFrom) {
		if delete(c, f.Stretch); f.Into.Width > 0 {
			moved[f.Into] += f.N
		}
	}
	for s, n := range nonZero(moved) {
		c[s] += n
	}
}

// event is n events of one moment.
type event struct{ ts, n int64 }

// cellFor returns a cell that may count events of a moment.
func cellFor(rnd *rand.Rand, l *leaparray.Ladder, ts, now, n int64) syncer.Bucket {
	b := syncer.Bucket{Stretch: leaparray.Moment(ts), N: n}
	if at, ok := l.Bucket(ts, now); ok && rnd.IntN(2) == 0 {
		b.Stretch = at
	}
	return b
}

// checkSums compares the cells of a key with the counted events. Cells and events that have left
// every window don't matter.
func checkSums(t *testing.T, have content, events []event, l *leaparray.Ladder, now int64) {
	t.Helper()
	for level := range l.Len() {
		width, coarsest := l.Width(level), level == l.Len()-1
		for from := l.CompleteFrom(now); from <= now; from += width {
			in := leaparray.Stretch{Start: from, Width: width}
			lo, hi, want := int64(0), int64(0), int64(0)
			for c, n := range have {
				if c.Start < in.End() && c.End() > from {
					if hi += n; c.Start >= from && c.End() <= in.End() {
						lo += n
					}
				}
			}
			for _, e := range events {
				if e.ts >= from && e.ts < in.End() {
					want += e.n
				}
			}
			if want < lo || want > hi || coarsest && lo != hi {
				t.Fatalf("at %d, %v has %d to %d events, want %d: %v", now, in, lo, hi, want, have)
			}
		}
	}
}
