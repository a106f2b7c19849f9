package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// foldingKey returns a key's part of a round that folds.
func foldingKey(name string, l *leaparray.Ladder, adds ...syncer.Bucket) syncer.KeyRound {
	k := key(name, adds...)
	k.Ladder, k.Fold = l, true
	return k
}

// testFold folds cells of all kinds: events that keep their millisecond, of which two stay, and
// buckets that are too old. The round reports the cells after the fold.
func testFold(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 2)
	was := []syncer.Bucket{moment(100, 1), moment(900, 2), moment(5000, 3), moment(9900, 1),
		moment(9950, 1), bucket(0, 0, 10), bucket(0, 1, 20), bucket(0, 8, 30), bucket(1, 0, 40),
		bucket(2, -1, 50)}
	apply(t, s, "v", 1, key("a", was...))
	k := foldingKey("a", l, moment(200, 5), bucket(0, 8, 1))
	k.Load = true
	r := applyAt(t, s, start+10_000, "w", 1, k)
	checkStored(t, &r.Keys[0], 5, 31)
	// The first bucket of two seconds that does not fold begins at 0, the first of one second at 6.
	want := []syncer.Bucket{bucket(1, 0, 73), bucket(1, 2, 3), bucket(0, 8, 31), bucket(2, -1, 50),
		moment(9900, 1), moment(9950, 1), moment(200, 5)}
	if got := contentOf(r.Keys[0].Loaded); !maps.Equal(got, contentOf(want)) {
		t.Errorf("loaded %v, want what there is after it folded: %v", got, want)
	}
	checkContent(t, s, "a", want...)
	applyAt(t, s, start+20_000, "w", 2, foldingKey("a", l))
	// A wider bucket than (0, 8) would contain the two events.
	checkContent(t, s, "a", bucket(2, 0, 81), bucket(0, 8, 31), bucket(2, -1, 50), moment(9900, 1),
		moment(9950, 1))
}

// event is n events of one moment.
type event struct{ ts, n int64 }

// testFoldKeepsSums counts events of any age, by two writers, and folds now and then. Each event is
// in one cell, which contains its time.
func testFoldKeepsSums(t *testing.T, s syncer.Store) {
	rnd := rand.New(rand.NewPCG(Seed(t), 3))
	l := smallLadder(t, 4)
	var events []event
	now := int64(start)
	for seq := range uint64(60) {
		now += rnd.Int64N(2000)
		for _, writer := range []string{"v", "w"} {
			k := key("a")
			k.Ladder, k.Fold = l, rnd.IntN(4) == 0
			for range rnd.IntN(4) {
				e := event{now - rnd.Int64N(1+rnd.Int64N(24_000)), 1 + rnd.Int64N(9)}
				if b := cellFor(rnd, l, e.ts, now, e.n); !slices.ContainsFunc(k.Adds,
					func(o syncer.Bucket) bool { return o.Stretch == b.Stretch }) {
					k.Adds, events = append(k.Adds, b), append(events, e)
				}
			}
			applyAt(t, s, now, writer, seq+1, k)
		}
		if seq%10 == 9 {
			checkSums(t, load(t, s, 17, nil, []byte("a")), events, l, now)
		}
	}
}

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

// testFoldsWhatOthersCounted folds a key of which the round's writer has no counts.
func testFoldsWhatOthersCounted(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 0)
	for i, writer := range []string{"u", "v"} {
		apply(t, s, writer, 1, key("a", moment(10+int64(i), 1), bucket(0, 1, 2)))
	}
	r := applyAt(t, s, start+5000, "w", 1, foldingKey("a", l))
	checkContent(t, s, "a", bucket(1, 0, 6))
	if read := (&syncer.Round{Partition: 17, Writer: "x"}); r.Version < 3 {
		exchange(t, s, read)
		t.Errorf("version %d, the store has %d", r.Version, read.Version)
	}
	applyAt(t, s, start+5000, "w", 2, foldingKey("absent", l))
	checkContent(t, s, "absent")
}

// testFoldsOnce sends a folding round again. It then only reads.
func testFoldsOnce(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 0)
	apply(t, s, "v", 1, key("a", bucket(0, 0, 5), bucket(0, 1, 6), bucket(0, 4, 7)))
	r := applyAt(t, s, start+5000, "w", 1, foldingKey("a", l, bucket(0, 4, 1), bucket(2, 0, 2)))
	checkStored(t, &r.Keys[0], 8, 2)
	version := r.Version
	apply(t, s, "v", 2, key("a", bucket(0, 0, 3)))
	r.Keys[0].Load = true
	for range 2 {
		exchange(t, s, r)
		checkStored(t, &r.Keys[0], 8, 2)
		if r.Lost || r.Version != version+1 {
			t.Errorf("again: lost %v, version %d, want %d", r.Lost, r.Version, version+1)
		}
		want := []syncer.Bucket{bucket(1, 0, 11), bucket(0, 4, 8), bucket(2, 0, 2), bucket(0, 0, 3)}
		if got := contentOf(r.Keys[0].Loaded); !maps.Equal(got, contentOf(want)) {
			t.Errorf("again: loaded %v, want %v", got, want)
		}
		checkContent(t, s, "a", want...)
	}
}

// testFoldByAClockAhead has a writer whose clock is ahead fold a key. Another writer, whose clock
// is behind, then goes on counting, and folds by its own time.
func testFoldByAClockAhead(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 2)
	apply(t, s, "v", 1, key("a", moment(100, 1), moment(900, 1), moment(1200, 1), moment(2500, 1),
		moment(60_000, 1))) // like a ban that ends in a minute
	applyAt(t, s, start+9000, "w", 1, foldingKey("a", l))
	checkContent(t, s, "a", bucket(1, 0, 3), moment(2500, 1), moment(60_000, 1))
	applyAt(t, s, start+2600, "v", 2, key("a", moment(100, 1), moment(2600, 1)))
	applyAt(t, s, start+2600, "v", 3, foldingKey("a", l))
	checkContent(t, s, "a", bucket(1, 0, 3), bucket(0, 0, 1), moment(2500, 1), moment(2600, 1),
		moment(60_000, 1))
	applyAt(t, s, start+1_000_000, "w", 2, foldingKey("a", l))
	checkContent(t, s, "a")
	apply(t, s, "v", 4, key("a", moment(2700, 1)))
	checkContent(t, s, "a", moment(2700, 1))
}

// testFoldDropsWhatHasLeft folds a key until none of it is left. It is new after that.
func testFoldDropsWhatHasLeft(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 4)
	apply(t, s, "w", 1, key("a", bucket(2, 0, 5), bucket(2, 2, 1), moment(8000, 2)))
	applyAt(t, s, start+56_000, "w", 2, foldingKey("a", l))
	checkContent(t, s, "a", bucket(2, 2, 1), moment(8000, 2))
	applyAt(t, s, start+64_000, "w", 3, foldingKey("a", l))
	checkContent(t, s, "a", bucket(2, 2, 1))
	checkTTL(t, s, "a", time.Hour)
	applyAt(t, s, start+72_000, "w", 4, foldingKey("a", l))
	checkContent(t, s, "a")
	k := key("a", moment(72_000, 1))
	k.TTL = (2 * time.Hour).Milliseconds()
	applyAt(t, s, start+72_000, "w", 5, k)
	checkContent(t, s, "a", moment(72_000, 1))
	checkTTL(t, s, "a", 2*time.Hour)
}

// testFoldKeepsMarks counts a mark: a bucket of the finest width without events. It stays until it
// is due to fold, and is no event that others have to make room for.
func testFoldKeepsMarks(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 2)
	marked := func(now int64) bool {
		t.Helper()
		r := &syncer.Round{Partition: 17, Now: now, Writer: "reader",
			Keys: []syncer.KeyRound{{Key: []byte("a"), Load: true}}}
		exchange(t, s, r)
		return slices.Contains(r.Keys[0].Loaded, bucket(0, 2, 0))
	}
	apply(t, s, "w", 1, key("a", moment(1900, 1), bucket(0, 2, 0)))
	if !marked(start) {
		t.Error("the mark is not there")
	}
	apply(t, s, "w", 2, key("a", moment(2900, 1), moment(2950, 1)))
	applyAt(t, s, start+3000, "w", 3, foldingKey("a", l))
	if !marked(start) {
		t.Error("the mark is gone once the key has folded")
	}
	checkContent(t, s, "a", bucket(0, 1, 1), moment(2900, 1), moment(2950, 1))
	apply(t, s, "w", 4, key("a", moment(20_000, 2)))
	applyAt(t, s, start+20_000, "w", 5, foldingKey("a", l))
	if marked(start + 20_000) {
		t.Error("the mark is still there when buckets of its age have folded")
	}
	checkContent(t, s, "a", bucket(2, 0, 3), moment(20_000, 2))
}

// testFoldOtherWidths folds cells of widths that are not on the ladder.
func testFoldOtherWidths(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 0)
	other := func(from, width, n int64) syncer.Bucket {
		return syncer.Bucket{Stretch: leaparray.Stretch{Start: start + from, Width: width}, N: n}
	}
	apply(t, s, "w", 1, key("a", other(0, 50, 1), other(500, 500, 2), other(4500, 500, 3),
		other(4000, 4000, 4), other(0, 4000, 5), other(-16_000, 16_000, 6)))
	applyAt(t, s, start+5000, "w", 2, foldingKey("a", l))
	checkContent(t, s, "a", bucket(1, 0, 3), bucket(0, 4, 3), other(4000, 4000, 4),
		other(0, 4000, 5),
		other(-16_000, 16_000, 6))
	applyAt(t, s, start+16_000, "w", 3, foldingKey("a", l))
	checkContent(t, s, "a", bucket(2, 0, 15), other(-16_000, 16_000, 6))
	applyAt(t, s, start+48_000, "w", 4, foldingKey("a", l))
	checkContent(t, s, "a", bucket(2, 0, 15))
}

// testFoldTakenBack takes back events that have folded meanwhile. Negative counts fold too.
func testFoldTakenBack(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 0)
	apply(t, s, "v", 1, key("a", moment(100, 5), moment(200, 1)))
	applyAt(t, s, start+2000, "v", 2, foldingKey("a", l))
	checkContent(t, s, "a", bucket(0, 0, 6))
	applyAt(t, s, start+2000, "w", 1, key("a", moment(100, -2), moment(200, -1)))
	checkContent(t, s, "a", bucket(0, 0, 6), moment(100, -2), moment(200, -1))
	applyAt(t, s, start+2000, "v", 3, foldingKey("a", l))
	checkContent(t, s, "a", bucket(0, 0, 3))
	apply(t, s, "w", 2, key("a", moment(100, -3)))
	applyAt(t, s, start+2000, "v", 4, foldingKey("a", l))
	checkContent(t, s, "a")
	apply(t, s, "w", 3, key("a", moment(100, 4), moment(200, -4)))
	applyAt(t, s, start+2000, "v", 5, foldingKey("a", l))
	checkContent(t, s, "a")
}

// testFoldMany folds as many cells at once as the largest ladder has.
func testFoldMany(t *testing.T, s syncer.Store) {
	const n = 9000
	var adds []syncer.Bucket
	for i := range int64(n) {
		adds = append(adds, moment(i, 1))
	}
	apply(t, s, "w", 1, key("a", adds...))
	applyAt(t, s, start+100_000, "w", 2, foldingKey("a", smallLadder(t, 0), bucket(0, 100, 3)))
	checkContent(t, s, "a", bucket(0, 100, 3))
	apply(t, s, "w", 3, key("b", adds...))
	applyAt(t, s, start+20_000, "w", 4, foldingKey("b", smallLadder(t, 256)))
	want := append(slices.Clone(adds[8000:]), bucket(2, 0, 8000))
	checkContent(t, s, "b", want...)
}

// testFoldsTooMany counts in more and more cells, without asking for a fold: the store folds a key
// with more cells than its ladder allows.
func testFoldsTooMany(t *testing.T, s syncer.Store) {
	for i, l := range []*leaparray.Ladder{smallLadder(t, 0), smallLadder(t, 8)} {
		name, sum := fmt.Sprint("a", i), int64(0)
		for j := range int64(20) {
			k := key(name)
			for n := range int64(40) {
				k.Adds = append(k.Adds, moment(1000*j+25*n, 1))
			}
			k.Ladder = l
			r := applyAt(t, s, start+1000*(j+1), "w", uint64(20*int64(i)+j+1), k)
			for _, b := range r.Keys[0].Adds {
				if sum += b.N; !IsStored(&b, 1) {
					t.Fatalf("stored is %d, want 1", b.Stored)
				}
			}
			total, have := int64(0), load(t, s, 17, nil, []byte(name))
			for _, n := range have {
				total += n
			}
			if len(have) > l.MaxCells() || total != sum {
				t.Fatalf("after %d writes: %d cells, its ladder has %d; the sum is %d, want %d",
					j+1, len(have), l.MaxCells(), total, sum)
			}
		}
		apply(t, s, "v", uint64(i)+1, key(name, moment(0, 1))) // without a ladder nothing folds
		if n := load(t, s, 17, nil, []byte(name))[leaparray.Moment(start)]; n != 1 {
			t.Errorf("%d events at the moment that was counted last, want 1", n)
		}
	}
}

func isUnread(b syncer.Bucket) bool { return b.Stored == syncer.Unread }

// testFoldsWhatHasGrown counts in a key with too many cells: it folds if a cell is new, or held 0.
// A store that does not read the moments it counts in can't say whether they are new.
func testFoldsWhatHasGrown(t *testing.T, s syncer.Store) {
	l := smallLadder(t, 0)
	many := []syncer.Bucket{moment(0, 0)}
	for i := range int64(l.MaxCells()) {
		many = append(many, moment(1+i, 1))
	}
	seq := uint64(0)
	for name, tc := range map[string]struct {
		adds  []syncer.Bucket
		grows bool
	}{
		"one more":             {[]syncer.Bucket{moment(1, 5)}, false},
		"taken back":           {[]syncer.Bucket{moment(1, -1)}, false},
		"two more":             {[]syncer.Bucket{moment(1, 5), moment(2, 1)}, false},
		"a mark that is there": {[]syncer.Bucket{moment(1, 0), moment(2, 3)}, false},
		"new":                  {[]syncer.Bucket{bucket(0, 19, 1)}, true},
		"0":                    {[]syncer.Bucket{moment(0, 1)}, true},
		"two, one new":         {[]syncer.Bucket{moment(1, 5), bucket(0, 19, 1)}, true},
		"two, one 0":           {[]syncer.Bucket{moment(1, 5), moment(0, 2)}, true},
	} {
		for _, loads := range []bool{false, true} {
			id := fmt.Sprint(name, loads)
			apply(t, s, "w", seq+1, key(id, many...))
			k := key(id, tc.adds...)
			k.Ladder, k.Load = l, loads
			seq += 2
			k = applyAt(t, s, start+20_000, "w", seq, k).Keys[0]
			_, folded := load(t, s, 17, nil, []byte(id))[at(2, 0)]
			if folded != tc.grows && !slices.ContainsFunc(k.Adds, isUnread) {
				t.Errorf("%s, load %v: folded %v", name, loads, folded)
			}
		}
	}
}

// testSeveralAdds makes several adds in a known key, to buckets that another writer has counted in,
// to new ones, and twice to the same one.
func testSeveralAdds(t *testing.T, s syncer.Store) {
	apply(t, s, "v", 1, key("a", bucket(0, 0, 2), moment(100, 7)))
	r := apply(t, s, "w", 1, key("a", bucket(0, 0, 3), moment(100, -7), moment(200, 4)))
	checkStored(t, &r.Keys[0], 5, 0, 4)
	apply(t, s, "w", 2, key("a", bucket(0, 1, 4), bucket(0, 1, 1), bucket(0, 0, 1)))
	checkContent(t, s, "a", bucket(0, 0, 6), moment(200, 4), bucket(0, 1, 5))
}
