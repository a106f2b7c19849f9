package storetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// see merges a value into those of a key.
func (c content) see(b syncer.Bucket) {
	switch {
	case b.N > 0:
		c[b.Stretch] = max(c[b.Stretch], b.N)
	case c[b.Stretch] <= -b.N:
		delete(c, b.Stretch)
	}
}

// valuesKey returns the name of a key that has values in random rounds.
func valuesKey(i int) []byte { return fmt.Append(nil, "values-", i) }

func hasValues(k *syncer.KeyRound) bool { return bytes.HasPrefix(k.Key, []byte("values-")) }

// values adds random values to a key's part, and deletes some. A part of a restoration only adds.
func (d *dice) values(r *syncer.Round, k *syncer.KeyRound) {
	have := d.model.partition(r.Partition).keys[nameOf(k)]
	present := d.model.stretches(r, k)
	adds := content{}
	if known := d.known[fmt.Sprint(r.Partition, nameOf(k))]; r.Republish && len(known) > 0 {
		adds = maps.Clone(known[d.IntN(len(known))])
	}
	n := d.IntN(5)
	if d.IntN(30) == 0 {
		n = 1100 // more than one command takes
	}
	for range n {
		hash := d.Uint64N(8) * (math.MaxUint64 / 7)
		if n > 5 {
			hash = d.Uint64()
		}
		s, time := leaparray.ValueAt(hash), d.now-d.Int64N(5000)
		if len(present) > 0 && d.IntN(2) == 0 {
			s = present[d.IntN(len(present))]
			time = have[s] + d.Int64N(3) - 1
		}
		if d.IntN(3) == 0 && !r.Republish {
			time = -time
		}
		adds[s] = time
	}
	k.Adds = append(k.Adds, bucketsOf(adds)...)
}

// value returns a value of a key that was seen this long after start.
func value(hash uint64, after int64) syncer.Bucket {
	return syncer.Bucket{Stretch: leaparray.ValueAt(hash), N: start + after}
}

// removal deletes a value that was not seen later than this long after start.
func removal(hash uint64, after int64) syncer.Bucket {
	b := value(hash, after)
	b.N = -b.N
	return b
}

// testValues sees and deletes values, each of whose rounds arrives twice.
func testValues(t *testing.T, s syncer.Store) {
	seq := uint64(0)
	see := func(k syncer.KeyRound, stored ...int64) {
		t.Helper()
		seq++
		r := apply(t, s, "w", seq, k)
		checkSeen(t, &r.Keys[0], stored...)
		exchange(t, s, r)
		checkSeen(t, &r.Keys[0], stored...)
	}
	const gone = -start
	see(key("a", value(100, 5)), 5)
	checkTTL(t, s, "a", time.Hour)
	see(key("a", value(100, 3)), 5)
	see(key("a", value(100, 7), value(0, 1), value(math.MaxUint64, 2)), 7, 1, 2)
	see(key("a", removal(100, 6), removal(0, 1), removal(5, 9)), 7, gone, gone)
	checkContent(t, s, "a", value(100, 7), value(math.MaxUint64, 2))
	// A key lives as long as when it was made, whether or not all its values are seen again.
	longer := key("a", value(100, 8), value(math.MaxUint64, 8))
	longer.TTL = (3 * time.Hour).Milliseconds()
	see(longer, 8, 8)
	checkTTL(t, s, "a", time.Hour)
	loaded := key("a", removal(100, 8), removal(101, 8))
	loaded.Load = true
	r := apply(t, s, "v", 1, loaded)
	if got := contentOf(r.Keys[0].Loaded); !maps.Equal(got, contentOf([]syncer.Bucket{
		value(math.MaxUint64, 8)})) {
		t.Errorf("loaded %v", got)
	}
	see(key("a", removal(math.MaxUint64, 8)), gone)
	checkContent(t, s, "a")
	longer.Adds = []syncer.Bucket{removal(7, 1), value(8, 4)}
	see(longer, gone, 4)
	checkTTL(t, s, "a", 3*time.Hour)
	last := value(9, 0)
	last.N = 1<<48 - 1
	reset := key("a", last)
	reset.Reset = true
	see(reset, last.N-start)
	checkContent(t, s, "a", last)
}

// checkSeen checks when the values of a key were last seen, after start.
func checkSeen(t testing.TB, k *syncer.KeyRound, want ...int64) {
	t.Helper()
	for i := range k.Adds {
		if got := k.Adds[i].Stored - start; got != want[i] {
			t.Errorf("%q value %d: it was seen %d after start, want %d", k.Key, i, got, want[i])
		}
	}
}

// testRestoredValues restores values after a loss, twice and in any order, which is as good as
// once; but not those of a key that was reset since.
func testRestoredValues(t *testing.T, s syncer.Store) {
	loser, ok := s.(Loser)
	if !ok {
		return
	}
	first := apply(t, s, "w", 1, key("a", value(100, 5), value(101, 5)))
	loser.Lose(t)
	apply(t, s, "v", 1, key("a", value(100, 9)))
	parts := []*syncer.Round{
		restorationRound(t, s, 17, first.Epoch, key("a", value(100, 5), value(101, 5))),
		restorationRound(t, s, 17, first.Epoch, key("a", value(101, 3), value(102, 1))),
	}
	for i := range 4 {
		r := parts[i%2]
		r.Writer, r.Epoch = fmt.Sprint("restorer-", i), epoch(t, s, 17)
		r.Version, r.Quieted, r.LastChange = 0, 0, ""
		exchange(t, s, r)
		checkSeen(t, &r.Keys[0], [][]int64{{9, 5}, {5, 1}}[i%2]...)
	}
	checkContent(t, s, "a", value(100, 9), value(101, 5), value(102, 1))
	reset := key("a", value(103, 2))
	reset.Reset = true
	apply(t, s, "v", 2, reset)
	last := restorationRound(t, s, 17, first.Epoch, key("a", value(100, 5), value(103, 1)))
	last.Writer = "late"
	for range 2 {
		exchange(t, s, last)
		checkSeen(t, &last.Keys[0], -start, 2)
	}
	checkContent(t, s, "a", value(103, 2))
}

// testManyValues sees thousands of values of a key, and deletes half of them at once.
func testManyValues(t *testing.T, s syncer.Store) {
	const n = 3000
	var seen, gone, rest []syncer.Bucket
	for i := range uint64(n) {
		hash := (i + 1) * (math.MaxUint64 / n)
		seen = append(seen, value(hash, int64(i)))
		if i%2 == 0 {
			gone = append(gone, removal(hash, n))
		} else {
			rest = append(rest, seen[i])
		}
	}
	r := apply(t, s, "w", 1, key("a", slices.Clone(seen)...))
	for i := range r.Keys[0].Adds {
		if got := r.Keys[0].Adds[i].Stored; got != seen[i].N {
			t.Fatalf("value %d was seen at %d, want %d", i, got, seen[i].N)
		}
	}
	checkContent(t, s, "a", seen...)
	apply(t, s, "w", 2, key("a", gone...))
	checkContent(t, s, "a", rest...)
}

// requireLister skips the test unless the store lists its keys.
func requireLister(t *testing.T, s syncer.Store) syncer.Lister {
	t.Helper()
	l, ok := s.(syncer.Lister)
	if !ok {
		t.Skip("this store doesn't list its keys")
	}
	return l
}

// readList reads a list to its end, and returns the hashes. begun reports whether a part of that
// was the beginning of the list.
func readList(t *testing.T, s syncer.Lister, l *syncer.KeyList) (found map[uint32]bool,
	begun bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found = map[uint32]bool{}
	for l.More = true; l.More; {
		if s.ListKeys(ctx, []*syncer.KeyList{l}); l.Err != nil {
			t.Fatal(l.Err)
		}
		begun = begun || l.Begun
		for _, h := range l.Hashes {
			found[h] = true
		}
	}
	return found, begun
}

func checkListed(t *testing.T, found map[uint32]bool, want bool, ns string, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if found[syncer.KeyHash([]byte(ns), []byte(k))] != want {
			t.Errorf("key %q of namespace %q is listed: %v, want %v", k, ns, !want, want)
		}
	}
}

func longLivedKey(name string) syncer.KeyRound {
	k := key(name, bucket(0, 0, 1), bucket(1, 0, 1))
	k.TTL, k.Renew = 86_400_000, true
	return k
}

func applyAll(t testing.TB, s syncer.Store, writer string, seq uint64, keys ...syncer.KeyRound) {
	t.Helper()
	exchange(t, s, &syncer.Round{Partition: 17, Writer: writer, Seq: seq, Keys: keys})
}

// testListKeys counts keys in every way that a round can, by two writers, and reads on in the list
// of keys each time: it gains all new keys, and no others.
func testListKeys(t *testing.T, s syncer.Store) {
	list, l := requireLister(t, s), &syncer.KeyList{Partition: 17}
	isNew, loaded, inNamespace := longLivedKey("new"), longLivedKey("loaded"), longLivedKey("named")
	isNew.New, loaded.Load, inNamespace.NS = true, true, []byte("login")
	applyAll(t, s, "v", 1, longLivedKey("plain"), isNew, loaded, inNamespace)
	found, _ := readList(t, list, l)
	checkListed(t, found, true, "", "plain", "new", "loaded")
	checkListed(t, found, true, "login", "named")
	checkListed(t, found, false, "", "named", "other")

	var many []syncer.KeyRound
	for i := range 300 {
		many = append(many, longLivedKey(fmt.Sprint("many-", i)))
	}
	applyAll(t, s, "w", 1, many...)
	forgotten := longLivedKey("new")
	forgotten.Reset = true
	applyAll(t, s, "v", 2, forgotten, longLivedKey("later"))
	found, begun := readList(t, list, l)
	checkListed(t, found, true, "", "many-0", "many-299", "later")
	checkListed(t, found, false, "", "plain")
	if begun {
		t.Error("the list has begun anew")
	}
	r := &syncer.Round{Partition: 17, Writer: "reader"}
	if exchange(t, s, r); l.Epoch != r.Epoch {
		t.Errorf("epoch %d, want %d", l.Epoch, r.Epoch)
	}
	whole := &syncer.KeyList{Partition: 17}
	found, _ = readList(t, list, whole)
	checkListed(t, found, true, "", "plain", "new", "loaded", "many-0", "many-299", "later")
	epoch(t, s, 18)
	if another, _ := readList(t, list, &syncer.KeyList{Partition: 18}); len(another) > 0 {
		t.Errorf("another partition lists %d keys", len(another))
	}
}

// testListTellsOfALoss checks that a list is not read if the store has less than KeyList.Told.
func testListTellsOfALoss(t *testing.T, s syncer.Store) {
	list := requireLister(t, s)
	applyAll(t, s, "v", 1, longLivedKey("a"), longLivedKey("b"))
	r := &syncer.Round{Partition: 17, Writer: "reader"}
	exchange(t, s, r)
	told := r.Told()
	other, version, quieted := told, told, told
	other.Epoch++
	version.Version++
	quieted.Quieted++
	for _, tt := range []struct {
		what string
		told syncer.Told
		lost bool
	}{
		{"nothing", syncer.Told{}, false}, {"what it has", told, false}, {"other data", other, true},
		{"another change", version, true}, {"another quiet change", quieted, true},
	} {
		l := &syncer.KeyList{Partition: 17, Told: tt.told}
		list.ListKeys(t.Context(), []*syncer.KeyList{l})
		if l.Err != nil || l.Lost != tt.lost || (len(l.Hashes) == 2) == tt.lost {
			t.Errorf("told of %s: lost %v, %d hashes, %v", tt.what, l.Lost, len(l.Hashes), l.Err)
		}
	}
}

// testListLostKeys loses everything, and restores a key. A counter that has read the list before
// reads it from its new beginning.
func testListLostKeys(t *testing.T, s syncer.Store) {
	list, l := requireLister(t, s), &syncer.KeyList{Partition: 17}
	loser, ok := s.(Loser)
	if !ok {
		t.Skip("this store can't lose data")
	}
	applyAll(t, s, "v", 1, longLivedKey("lost"), longLivedKey("restored"))
	readList(t, list, l)
	loser.Lose(t)
	restored := key("restored", bucket(0, 0, 8))
	exchange(t, s, restorationRound(t, s, 17, l.Epoch, restored))
	found, begun := readList(t, list, l)
	checkListed(t, found, true, "", "restored")
	checkListed(t, found, false, "", "lost")
	if !begun {
		t.Error("the list has not begun anew")
	}
}
