package storetest

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

func testManyKeys(t *testing.T, s syncer.Store) {
	const n = 2000
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 1}
	for i := range n {
		k := key(fmt.Sprint("key-", i), bucket(0, 0, int64(i+1)), bucket(1, 0, 1), bucket(2, 0, 1))
		k.Load = i%2 == 0
		r.Keys = append(r.Keys, k)
	}
	for range 2 {
		exchange(t, s, r)
		for i := range r.Keys {
			k := &r.Keys[i]
			checkHeld(t, s, *k, int64(i+1), 1, 1)
			if k.Load && len(contentOf(k.Loaded)) != 3 {
				t.Fatalf("%s: loaded %v", k.Key, k.Loaded)
			}
		}
	}
}

func testTTL(t *testing.T, s syncer.Store) {
	ttl, ok := s.(TTLer)
	if !ok {
		return // the store doesn't reveal it
	}
	name := []byte("a")
	check := func(want time.Duration) {
		t.Helper()
		if got := ttl.TTL(t, 17, nil, name); got > want || got < want-slack {
			t.Errorf("time to live %v, want %v", got, want)
		}
	}
	apply(t, s, "w", 1, key("a", bucket(0, 0, 1))) // it is new, so it need not be renewed
	check(time.Hour)
	k := key("a", bucket(0, 0, 1))
	k.TTL = (3 * time.Hour).Milliseconds()
	apply(t, s, "w", 2, k)
	check(time.Hour)
	k.Renew = true
	r := apply(t, s, "w", 3, k)
	check(3 * time.Hour)
	r.Keys[0].TTL = time.Minute.Milliseconds()
	exchange(t, s, r)
	check(3 * time.Hour)
	part := syncer.KeyRound{Key: name, TTL: (5 * time.Hour).Milliseconds(), Renew: true,
		Adds: []syncer.Bucket{bucket(0, 0, 1)}}
	exchange(t, s, &syncer.Round{Partition: 17, Writer: "restorer", Seq: 1, Epoch: r.Epoch,
		Republish: true,
		Keys:      []syncer.KeyRound{part}})
	check(5 * time.Hour)
	renewal := syncer.KeyRound{Key: name, TTL: (4 * time.Hour).Milliseconds(), Renew: true}
	apply(t, s, "w", 4, renewal)
	check(4 * time.Hour)
	k.Renew, k.Reset, k.TTL = false, true, (2 * time.Hour).Milliseconds()
	apply(t, s, "w", 5, k) // it is new again
	check(2 * time.Hour)
	renewal.Key = []byte("b")
	apply(t, s, "w", 6, renewal)
	checkContent(t, s, "b")
}

func testBadKey(t *testing.T, s syncer.Store) {
	spoiler, ok := s.(Spoiler)
	if !ok {
		return // a single key can't be spoiled in this store
	}
	spoiler.Spoil(t, 17, nil, []byte("bad"))
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 1, Keys: []syncer.KeyRound{
		key("a", bucket(0, 0, 1)), key("bad", bucket(0, 0, 1), bucket(1, 0, 1)),
		key("b", bucket(0, 0, 2), bucket(1, 0, 3)),
		{Key: []byte("bad"), Load: true}, {Key: []byte("a"), Load: true},
	}}
	for range 2 {
		exchange(t, s, r)
		for i, bad := range []bool{false, true, false, true, false} {
			if (r.Keys[i].Err != nil) != bad {
				t.Errorf("key %d (%s): %v", i, r.Keys[i].Key, r.Keys[i].Err)
			}
		}
		checkHeld(t, s, r.Keys[0], 1)
		checkHeld(t, s, r.Keys[2], 2, 3)
		if got := contentOf(r.Keys[4].Loaded); !maps.Equal(got, content{at(0, 0): 1}) {
			t.Errorf("loaded %v", got)
		}
	}
	// A reset removes the obstacle.
	k := key("bad", bucket(0, 0, 4))
	k.Reset = true
	apply(t, s, "w", 2, k)
	checkContent(t, s, "bad", bucket(0, 0, 4))
}

func testLarge(t *testing.T, s syncer.Store) {
	const exact = 1 << 53
	apply(t, s, "w", 1, key("a", bucket(0, 0, math.MaxInt32), bucket(1, 0, exact-1),
		bucket(2, 0, math.MaxInt64-1)))
	checkContent(t, s, "a", bucket(0, 0, math.MaxInt32), bucket(1, 0, exact-1),
		bucket(2, 0, math.MaxInt64-1))
	apply(t, s, "w", 2, key("a", bucket(0, 0, math.MaxInt32), bucket(1, 0, 1), bucket(2, 0, 1)))
	checkContent(t, s, "a", bucket(0, 0, 2*math.MaxInt32), bucket(1, 0, exact),
		bucket(2, 0, math.MaxInt64))
	apply(t, s, "w", 3, key("a", bucket(1, 0, 1), bucket(2, 0, -math.MaxInt64)))
	checkContent(t, s, "a", bucket(0, 0, 2*math.MaxInt32), bucket(1, 0, exact+1))
	apply(t, s, "w", 4, key("b", bucket(0, 0, -exact), bucket(1, 0, math.MinInt64)))
	checkContent(t, s, "b", bucket(0, 0, -exact), bucket(1, 0, math.MinInt64))
}

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
