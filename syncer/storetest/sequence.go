package storetest

import (
	"testing"

	"twotier.dev/twotier/syncer"
)

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

func testLowerSequence(t *testing.T, s syncer.Store) {
	apply(t, s, "w", 1, key("a", bucket(0, 0, 1)))
	apply(t, s, "w", 2, key("a", bucket(0, 0, 10)))
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 1,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 100))}}
	r.Keys[0].Reset = true
	exchange(t, s, r)
	checkHeld(t, s, r.Keys[0], 11)
	checkContent(t, s, "a", bucket(0, 0, 11))
	// Sequences may skip numbers.
	r = &syncer.Round{Partition: 17, Writer: "w", Seq: 9, Acked: 2,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 100))}}
	exchange(t, s, r)
	checkContent(t, s, "a", bucket(0, 0, 111))
	r = &syncer.Round{Partition: 17, Writer: "w", Seq: 5, Acked: 2,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 1000))}}
	exchange(t, s, r)
	checkContent(t, s, "a", bucket(0, 0, 111))
}

func testSequencesAreApart(t *testing.T, s syncer.Store) {
	apply(t, s, "w", 1, key("a", bucket(0, 0, 1)))
	apply(t, s, "w", 2, key("a", bucket(0, 0, 1)))
	apply(t, s, "v", 1, key("a", bucket(0, 0, 1)))
	checkContent(t, s, "a", bucket(0, 0, 3))
	r := &syncer.Round{Partition: 18, Writer: "w", Seq: 1,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 5))}}
	exchange(t, s, r)
	if got := load(t, s, 18, nil, []byte("a")); got[at(0, 0)] != 5 {
		t.Errorf("the other partition has %v", got)
	}
	checkContent(t, s, "a", bucket(0, 0, 3))
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

// testEpoch sends rounds for other data than the store's.
func testEpoch(t *testing.T, s syncer.Store) {
	first := epoch(t, s, 17)
	one := apply(t, s, "w", 1, key("a", bucket(0, 0, 1)))
	if first == 0 || one.Epoch != first || epoch(t, s, 17) != first {
		t.Fatalf("epoch %d, then %d, then %d", first, one.Epoch, epoch(t, s, 17))
	}
	if two := apply(t, s, "v", 1, key("a", bucket(0, 0, 1))); two.Epoch != one.Epoch {
		t.Errorf("epoch %d of another writer, want %d", two.Epoch, one.Epoch)
	}
	r := &syncer.Round{Partition: 17, Writer: "x", Seq: 1, Epoch: one.Epoch + 1,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 10))}}
	exchange(t, s, r)
	if !r.Lost || r.Epoch != one.Epoch {
		t.Errorf("a round for other data: lost %v, epoch %d, want %d", r.Lost, r.Epoch, one.Epoch)
	}
	checkContent(t, s, "a", bucket(0, 0, 2))
	part := &syncer.Round{Partition: 17, Writer: "x", Seq: 1, Epoch: one.Epoch + 1, Republish: true,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 10))}}
	exchange(t, s, part)
	if !part.Lost || part.Epoch != one.Epoch {
		t.Errorf("a restoration into other data: lost %v, epoch %d, want %d", part.Lost, part.Epoch,
			one.Epoch)
	}
	checkContent(t, s, "a", bucket(0, 0, 2))
	part.Lost = false
	exchange(t, s, part)
	if part.Lost {
		t.Error("a restoration into the right data is lost")
	}
	checkContent(t, s, "a", bucket(0, 0, 12))
}

// testQuietRound counts without incrementing the version.
func testQuietRound(t *testing.T, s syncer.Store) {
	one := apply(t, s, "w", 1, key("a", bucket(0, 0, 1)))
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 2, Acked: 1, Epoch: one.Epoch, Quiet: true,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 1))}}
	for range 2 {
		exchange(t, s, r)
		if r.Lost || r.Version != one.Version || r.Quieted != 1 {
			t.Errorf("lost %v, version %d, want %d, quieted %d", r.Lost, r.Version, one.Version,
				r.Quieted)
		}
		checkHeld(t, s, r.Keys[0], 2)
	}
	first := &syncer.Round{Partition: 18, Writer: "w", Seq: 1, Quiet: true,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 1))}}
	exchange(t, s, first)
	if first.Epoch == 0 || first.Version != 1 || first.Quieted != 1 ||
		epoch(t, s, 18) != first.Epoch {
		t.Errorf("the first round of a partition: version %d, quieted %d, epoch %d", first.Version,
			first.Quieted, first.Epoch)
	}
}

func testVersion(t *testing.T, s syncer.Store) {
	one := apply(t, s, "w", 1, key("a", bucket(0, 0, 1)))
	two := apply(t, s, "v", 1, key("b", bucket(0, 0, 1)))
	if two.Version != one.Version+1 {
		t.Errorf("version %d after another writer's change to %d, want 1 more", two.Version,
			one.Version)
	}
	read := &syncer.Round{Partition: 17, Writer: "w", Acked: 1,
		Keys: []syncer.KeyRound{{Key: []byte("a"), Load: true}}}
	exchange(t, s, read)
	if read.Version != two.Version {
		t.Errorf("a read finds version %d, want %d", read.Version, two.Version)
	}
	exchange(t, s, two)
	if two.Version != read.Version {
		t.Errorf("the same round again finds version %d, want %d", two.Version, read.Version)
	}
	elsewhere := &syncer.Round{Partition: 18, Writer: "w", Seq: 1,
		Keys: []syncer.KeyRound{key("a", bucket(0, 0, 1))}}
	exchange(t, s, elsewhere, read)
	if elsewhere.Version != 1 || read.Version != two.Version {
		t.Errorf("versions %d and %d of two partitions, want 1 and %d", elsewhere.Version,
			read.Version, two.Version)
	}
	verify := &syncer.Round{Partition: 17, Writer: "w", Acked: 1}
	exchange(t, s, verify)
	if verify.Version != two.Version || verify.Lost {
		t.Errorf("without keys: %d, lost %v", verify.Version, verify.Lost)
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
