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
