package leaparray_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier/leaparray"
)

// TestRestoringAfterALoss has a store lose all its counts, or the latest ones. Several nodes have
// copies of its counts from different times, some by another ladder, and fold them when they like,
// as the store does. They restore one after the other, in any order, while more is counted. In the
// end the store has all events that the node with the most knew, and no bound excludes the true
// number.
func TestRestoringAfterALoss(t *testing.T) {
	eachSeed(t, 400, func(t *testing.T, rnd *rand.Rand) {
		l := randomLadder(t, rnd, []int{0, 8, 64}[rnd.IntN(3)])
		store, known := &key{l: l, now: 1_700_000_000_000 + rnd.Int64N(1e9)}, 0
		var events log
		var nodes []*key
		count := func() {
			store.now += rnd.Int64N(1 + l.Span()/400)
			ts := store.now - rnd.Int64N(1+l.Span()/int64(2+rnd.IntN(100)))
			if store.count(ts, 1) {
				events = append(events, event{ts, 1})
			}
			store.shuffle(rnd)
		}
		left := &key{l: l, now: store.now}
		for range 100 + rnd.IntN(100) {
			count()
			switch rnd.IntN(60) {
			case 0:
				n := copyOf(store)
				if other := randomLadder(t, rnd, 8); rnd.IntN(3) == 0 && other.Span() >= l.Span() {
					n = by(other, n)
				}
				nodes, known = append(nodes, n), len(events)
			case 1:
				left = copyOf(store)
				if len(nodes) == 0 {
					left = &key{l: l, now: store.now}
				}
			}
			for _, n := range nodes {
				n.now = store.now
				n.shuffle(rnd)
			}
		}
		events = events[:known]
		if l.Total(left.synced) > int64(known) {
			return // the store has more than anybody knows
		}
		left.now = store.now
		store = left
		restored := cellsOf(store) // surviving cells count as restored
		rnd.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		for _, n := range nodes {
			for range rnd.IntN(5) {
				count()
			}
			n.now = store.now
			n.shuffle(rnd)
			add := leaparray.MissingCells(cellsOf(n), restored)
			for _, c := range add {
				store.put(true, c.Stretch, c.N)
			}
			restored = append(restored, add...)
			store.shuffle(rnd)
		}
		if sum := l.Total(store.synced) + l.Total(store.pending); sum != int64(len(events)) {
			t.Fatalf("%v: the store has %d, want %d, of which %d were restored by %d", l.Levels(),
				sum, len(events), known, len(nodes))
		}
		for range 20 {
			checkBounds(t, rnd, store, events)
		}
	})
}

// copyOf returns a copy of a key with all of it in one counter.
func copyOf(k *key) *key {
	n := &key{l: k.l, now: k.now, synced: slices.Clone(k.synced), pending: slices.Clone(k.pending)}
	n.flush()
	return n
}

// by returns a copy of a key by another ladder.
func by(l *leaparray.Ladder, k *key) *key {
	n := &key{l: l, now: k.now}
	for s, c := range k.cells() {
		n.put(true, s, c)
	}
	n.fold(n.exactFrom())
	return n
}

func cellsOf(k *key) (list []leaparray.Cell) {
	for s, n := range k.cells() {
		if n != 0 {
			list = append(list, leaparray.Cell{Stretch: s, N: n})
		}
	}
	return list
}

// TestRestoringKeepsPrecision has one node that knows everything restore half of it, and then all.
func TestRestoringKeepsPrecision(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		known := cellsOf(randomKey(t, rnd))
		restored := leaparray.MissingCells(known[:len(known)/2], nil)
		restored = append(restored, leaparray.MissingCells(known, restored)...)
		sums := map[leaparray.Stretch]int64{}
		for _, c := range restored {
			sums[c.Stretch] += c.N
		}
		for _, c := range known {
			if sums[c.Stretch] -= c.N; sums[c.Stretch] != 0 {
				t.Errorf("%v: %d restored too many", c, sums[c.Stretch])
			}
		}
	})
}

// TestMissingAcrossLadders restores the same events from two nodes with ladders of which none
// divides the other. The added cell begins at a multiple of its width, so that a store can name it.
func TestMissingAcrossLadders(t *testing.T) {
	known := []leaparray.Cell{{Stretch: leaparray.Stretch{Start: 60_000, Width: 30_000}, N: 5}}
	restored := []leaparray.Cell{{Stretch: leaparray.Stretch{Start: 84_000, Width: 7000}, N: 2}}
	want := leaparray.Cell{Stretch: leaparray.Stretch{Start: 0, Width: 124_000}, N: 3}
	if got := leaparray.MissingCells(known, restored); !slices.Equal(got, []leaparray.Cell{want}) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestMissingIgnoresMarks has a restored cell whose counts have been taken back. It covers the
// known cell, and has no event of it.
func TestMissingIgnoresMarks(t *testing.T) {
	restored := []leaparray.Cell{
		{Stretch: leaparray.Stretch{Start: 120_000, Width: 8000}},
		{Stretch: leaparray.Stretch{Start: 120_000, Width: 1000}, N: 95},
	}
	known := []leaparray.Cell{{Stretch: leaparray.Stretch{Start: 124_000, Width: 2000}, N: 91}}
	if got := leaparray.MissingCells(known, restored); !slices.Equal(got, known) {
		t.Errorf("%v, want %v", got, known)
	}
}

// TestEachUpTo compares the cells up to a width with all cells. Those of a width that the ladder
// has come in the order of time, the narrow ones first.
func TestEachUpTo(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		k := randomKey(t, rnd)
		widest := k.l.Width(rnd.IntN(k.l.Len())) - rnd.Int64N(2)
		want, last := map[leaparray.Stretch]int64{}, leaparray.Stretch{}
		k.l.EachCell(k.synced, func(s leaparray.Stretch, n int64) bool {
			if s.Width <= widest {
				want[s] += n
			}
			return true
		})
		k.l.EachUpTo(k.synced, widest, func(s leaparray.Stretch, n int64) {
			if s.Width < last.Width || s.Width == last.Width && s.Start <= last.Start {
				t.Errorf("%v after %v", s, last)
			}
			if want[s] != n {
				t.Errorf("%d in %v, want %d", n, s, want[s])
			}
			delete(want, s)
			last = s
		})
		if len(want) > 0 {
			t.Errorf("up to %d ms, it lacks %v", widest, want)
		}
	})
}
