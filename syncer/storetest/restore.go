package storetest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier/syncer"
)

// restorationRound returns the only part of a restoration of counts known in an epoch, into the
// store's present data of a partition.
func restorationRound(t *testing.T, s syncer.Store, partition int, after uint64,
	keys ...syncer.KeyRound) *syncer.Round {
	t.Helper()
	r := &syncer.Round{Partition: partition, Writer: "reader"}
	exchange(t, s, r)
	return &syncer.Round{
		Partition: partition, Now: start, Writer: rand.Text(), Seq: 1, Keys: keys,
		Epoch: r.Epoch, Version: r.Version, Quieted: r.Quieted, LastChange: r.LastChange,
		After: after, Republish: true,
	}
}

// testRepublishKeepsZero restores a mark, twice. A bucket that has been counted in since stays
// unchanged. A mark is no knowledge of the events in its bucket.
func testRepublishKeepsZero(t *testing.T, s syncer.Store) {
	apply(t, s, "v", 1, key("a", bucket(0, 0, 5), bucket(1, 2, 7)))
	for range 2 {
		r := restorationRound(t, s, 17, 0, key("a", bucket(0, 3, 0), bucket(1, 2, 0)))
		exchange(t, s, r)
		read := &syncer.Round{Partition: 17, Writer: "x", ReadOnly: true,
			Keys: []syncer.KeyRound{{Key: []byte("a"), Load: true}}}
		exchange(t, s, read)
		for _, got := range [][]syncer.Bucket{r.Keys[0].Loaded, read.Keys[0].Loaded} {
			if len(got) != 3 || !slices.Contains(got, bucket(0, 3, 0)) {
				t.Errorf("the store holds %v", got)
			}
		}
	}
	exchange(t, s, restorationRound(t, s, 17, 0, key("b", moment(2200, 1))))
	exchange(t, s, restorationRound(t, s, 17, 0, key("b", moment(2100, 1), bucket(0, 2, 0))))
	checkContent(t, s, "b", moment(2100, 1), moment(2200, 1))
}

// testRepublishedPartsHaveSequences rewinds the store to before the second part of a restoration,
// then lets others make as many changes as were lost. The store still reports the loss to the
// writer of the parts, whether it next restores, counts, reads or loads.
func testRepublishedPartsHaveSequences(t *testing.T, s syncer.Store) {
	loser, ok := s.(Loser)
	if !ok {
		return
	}
	first := restorationRound(t, s, 17, 0, key("a", bucket(0, 0, 8)))
	exchange(t, s, first)
	rewind := loser.Image(t)
	part := func(seq, acked uint64, name string) *syncer.Round {
		r := copyOf(first)
		r.Seq, r.Acked, r.Nonce = seq, acked, seq
		r.Keys = []syncer.KeyRound{key(name, bucket(0, 0, 9))}
		return r
	}
	second := part(2, 1, "b")
	exchange(t, s, second)
	rewind()
	for i := range 3 {
		apply(t, s, fmt.Sprint("other-", i), 1, key("c", bucket(0, 0, 1)))
	}
	count := part(3, 2, "b")
	count.Republish = false
	read := part(0, 2, "b")
	read.Republish, read.Keys = false, nil
	restore := part(3, 2, "d")
	for name, r := range map[string]*syncer.Round{"restores": restore, "counts": count,
		"reads": read} {
		r.Epoch, r.Version = second.Epoch, second.Version
		if exchange(t, s, r); !r.Lost {
			t.Errorf("who %s is not told that the store has lost what was restored", name)
		}
	}
	checkContent(t, s, "b")
	twin := part(1, 0, "b")
	twin.Version, twin.Nonce = 0, 99
	if exchange(t, s, twin); !twin.Used || twin.Lost {
		t.Errorf("a part with the number of another: used %v, lost %v", twin.Used, twin.Lost)
	}
	checkContent(t, s, "b")
	second.Version, second.LastChange = 0, ""
	exchange(t, s, second)
	checkContent(t, s, "b", bucket(0, 0, 9))
}

// testRewindBehindAnother rewinds the store to before changes by others, then lets more changes
// take their place. The store reports the loss to a counter that only knows of the lost changes, in
// answer to any kind of round, and to one that made them and only loads.
func testRewindBehindAnother(t *testing.T, s syncer.Store) {
	loser, ok := s.(Loser)
	if !ok {
		return
	}
	apply(t, s, "old", 1, key("a", bucket(0, 0, 8)))
	rewind := loser.Image(t)
	for _, lost := range []struct {
		writer string
		seq    uint64
	}{{"new", 1}, {"old", 2}} {
		r := apply(t, s, lost.writer, lost.seq, key("a", bucket(0, 0, 2)))
		rewind()
		for i := range 3 {
			apply(t, s, fmt.Sprint("other-", i), 1, key("b", bucket(0, 0, 1)))
		}
		rounds := readOnlyRounds()
		own := *rounds["loads"]
		own.Writer = lost.writer
		rounds["loads again"] = &own
		for name, asks := range rounds {
			asks.Expect(r.Told())
			if exchange(t, s, asks); !asks.Lost {
				t.Errorf("who %s is not told that a change of %q is lost", name, lost.writer)
			}
		}
		checkContent(t, s, "a", bucket(0, 0, 8))
		rewind()
	}
}

// readOnlyRounds returns a round of each kind, from writers that have written nothing.
func readOnlyRounds() map[string]*syncer.Round {
	a := []syncer.KeyRound{key("c", bucket(0, 0, 9))}
	load := []syncer.KeyRound{{Key: []byte("a"), Load: true}}
	return map[string]*syncer.Round{
		"verifies": {Partition: 17, Writer: "verifies"},
		"reads":    {Partition: 17, Writer: "reads", Keys: load},
		"loads":    {Partition: 17, Writer: "loads", Keys: load, ReadOnly: true},
		"counts":   {Partition: 17, Writer: "counts", Seq: 1, Keys: a},
		"restores": {Partition: 17, Writer: "restores", Seq: 1, Keys: a, Republish: true},
	}
}

// testNames counts under names that a careless store would mistake for one another or for its own
// names.
func testNames(t *testing.T, s syncer.Store) {
	names := []struct{ ns, key string }{
		{"", "a"}, {"", "a:b"}, {"", "{a}"}, {"", "}{"}, {"", "{p18}"}, {"", " "}, {"", "a b"},
		{"", "*"}, {"", "\\"}, {"", `"'`},
		{"", "ключ"}, {"", "日本語キー"}, {"", "😀"}, {"", "!v"}, {"", "!w:w"}, {"", "%"}, {"", "%s%d"},
		{"", "0"}, {"", "-1"}, {"", "nil"},
		{"", "default"}, {"", ":"}, {"", "default:a"}, {"ns", "a"}, {"ns2", "a"}, {"n", "s:a"},
		{"sms", "a"}, {"sms", "{x}:y z"},
		{"api.v1_x-y", "a"}, {"", string(longestKey())},
	}
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 1}
	for i, n := range names {
		k := key(n.key, bucket(0, 0, int64(i+1)))
		k.NS = []byte(n.ns)
		r.Keys = append(r.Keys, k)
	}
	exchange(t, s, r)
	for i, n := range names {
		if err := r.Keys[i].Err; err != nil {
			t.Errorf("%q %q: %v", n.ns, n.key, err)
		}
		if got := load(t, s, 17, []byte(n.ns), []byte(n.key)); len(got) != 1 ||
			got[at(0, 0)] != int64(i+1) {
			t.Errorf("%q %q holds %v, want %d", n.ns, n.key, got, i+1)
		}
		if got := load(t, s, 18, []byte(n.ns), []byte(n.key)); len(got) != 0 {
			t.Errorf("%q %q is in another partition: %v", n.ns, n.key, got)
		}
	}
}

// longestKey returns a key of 256 bytes that contains every printable ASCII byte, and bytes above
// 127 in valid UTF-8.
func longestKey() []byte {
	var b []byte
	for c := rune(' '); len(b) < 254; c++ {
		if c != 0x7f {
			b = append(b, string(c)...)
		}
		if c == 0x7e {
			c = 0xa0
		}
	}
	for len(b) < 256 {
		b = append(b, '~')
	}
	return b[:256]
}

func testOncePerSequence(t *testing.T, s syncer.Store) {
	r := apply(t, s, "w", 1, key("a", bucket(0, 0, 3), bucket(1, 0, 4)))
	checkHeld(t, s, r.Keys[0], 3, 4)
	version := r.Version
	for range 3 {
		r.Version = 0
		exchange(t, s, r)
		checkHeld(t, s, r.Keys[0], 3, 4)
		if r.Lost || r.Version != version {
			t.Errorf("again: lost %v, version %d, want %d", r.Lost, r.Version, version)
		}
	}
	r.Keys[0].Load = true
	exchange(t, s, r)
	if got := contentOf(r.Keys[0].Loaded); len(got) != 2 {
		t.Errorf("again, with load: %v", got)
	}
	checkContent(t, s, "a", bucket(0, 0, 3), bucket(1, 0, 4))
	// The round's Acked may have grown meanwhile.
	r.Acked = 1
	exchange(t, s, r)
	checkHeld(t, s, r.Keys[0], 3, 4)
	apply(t, s, "w", 2, key("a", bucket(0, 0, 1)))
	checkContent(t, s, "a", bucket(0, 0, 4), bucket(1, 0, 4))
}

func testLost(t *testing.T, s syncer.Store) {
	apply(t, s, "other", 1, key("a", bucket(0, 0, 7)))
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 6, Acked: 5,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 1), bucket(1, 0, 1))}}
	r.Now, r.Keys[0].Reset, r.Keys[0].Load = start+1e9, true, true
	for range 2 {
		r.Lost = false
		exchange(t, s, r)
		if !r.Lost {
			t.Fatal("the store has less than was acknowledged and doesn't say so")
		}
	}
	checkContent(t, s, "a", bucket(0, 0, 7))
	read := &syncer.Round{Partition: 17, Writer: "w", Acked: 5,
		Keys: []syncer.KeyRound{{Key: []byte("a"), Load: true}}}
	exchange(t, s, read)
	if !read.Lost {
		t.Error("a read doesn't notice the loss")
	}
	// The same round is applied in an epoch in which nothing was acknowledged.
	r.Acked = 0
	r.Keys[0].Reset = false
	exchange(t, s, r)
	if r.Lost {
		t.Error("still lost")
	}
	checkHeld(t, s, r.Keys[0], 8, 1)
	if got := contentOf(r.Keys[0].Loaded); len(got) != 2 || got[at(0, 0)] != 8 {
		t.Errorf("loaded %v", got)
	}
}

func testRoundsTogether(t *testing.T, s syncer.Store) {
	var rounds []*syncer.Round
	for i := range 40 {
		rounds = append(rounds, &syncer.Round{Partition: i, Writer: "w", Seq: 1,
			Keys: []syncer.KeyRound{
				key("a", bucket(0, 0, int64(i+1))), key("b", bucket(0, 0, 1), bucket(1, 0, 2)),
				{Key: []byte("c"), Load: true},
			}})
	}
	// A round that finds a loss, and one that only reads, don't affect the others.
	rounds[7].Acked = 3
	rounds[8].Seq = 0
	rounds[8].Keys = []syncer.KeyRound{{Key: []byte("a"), Load: true}}
	exchange(t, s, rounds...)
	exchange(t, s, rounds...)
	for i, r := range rounds {
		want := content{at(0, 0): int64(i + 1)}
		if i == 7 || i == 8 {
			want = content{}
		}
		if got := load(t, s, i, nil, []byte("a")); len(got) != len(want) ||
			got[at(0, 0)] != want[at(0, 0)] {
			t.Errorf("partition %d holds %v, want %v", i, got, want)
		}
		if r.Lost != (i == 7) {
			t.Errorf("partition %d: lost %v", i, r.Lost)
		}
	}
}

func testNoRounds(t *testing.T, s syncer.Store) { exchange(t, s); exchange(t, s) }

// testWriterUsedTwice sends rounds of two processes under one writer.
func testWriterUsedTwice(t *testing.T, s syncer.Store) {
	cut := func(seq, nonce uint64, n int64) *syncer.Round {
		return &syncer.Round{Partition: 17, Writer: "w", Seq: seq, Nonce: nonce, Acked: seq - 1,
			Keys: []syncer.KeyRound{key("a", bucket(0, 0, n))}}
	}
	first := cut(1, 7, 1)
	exchange(t, s, first)
	exchange(t, s, first) // as if its reply had been lost
	if first.Used || first.Later {
		t.Errorf("the same round again: used %v, later %v", first.Used, first.Later)
	}
	other := cut(1, 8, 10)
	exchange(t, s, other)
	if !other.Used || other.Lost {
		t.Errorf("another round of the same number: used %v, lost %v", other.Used, other.Lost)
	}
	exchange(t, s, cut(2, 9, 100))
	other = cut(1, 8, 10)
	exchange(t, s, other)
	if !other.Later || other.Lost {
		t.Errorf("a round behind: later %v, lost %v", other.Later, other.Lost)
	}
	checkContent(t, s, "a", bucket(0, 0, 101))
}
