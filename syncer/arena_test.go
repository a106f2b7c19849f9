package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier/leaparray"
	"twotier/syncer"
)

// blocks is an arena and what is known to be in it: each block is full of its own number.
type blocks struct {
	t      *testing.T
	arena  *syncer.Arena
	all    []block
	number uint64
	words  int
}

type block struct {
	ref    syncer.Ref
	words  int
	number uint64
}

func (b *blocks) alloc(n int) {
	b.number++
	b.words += n
	one := block{b.arena.Alloc(n), n, b.number}
	if one.ref == 0 {
		b.t.Fatalf("block %d of %d words has no ref", one.number, n)
	}
	words := b.arena.Words(one.ref, n)
	for i, w := range words {
		if w != 0 {
			b.t.Fatalf("word %d of a new block of %d holds %d", i, n, w)
		}
		words[i] = b.number
	}
	b.all = append(b.all, one)
}

func (b *blocks) check(one block) {
	for i, w := range b.arena.Words(one.ref, one.words) {
		if w != one.number {
			b.t.Fatalf("word %d of block %d, of %d words, holds %d", i, one.number, one.words, w)
		}
	}
}

func (b *blocks) release(i int) {
	one := b.all[i]
	b.check(one)
	b.arena.Release(one.ref, one.words)
	b.words -= one.words
	b.all[i] = b.all[len(b.all)-1]
	b.all = b.all[:len(b.all)-1]
}

// vacate has chunks given back, some blocks being moved now, some later.
func (b *blocks) vacate(r *rand.Rand) {
	b.arena.Vacate(r.IntN(20_000))
	for i := 0; i < len(b.all); i++ {
		if b.arena.Vacates(b.all[i].ref) && r.IntN(10) > 0 {
			b.alloc(b.all[i].words)
			b.release(i) // the new one takes its place
		}
	}
}

func (b *blocks) balance() {
	total, unused, taken := b.arena.Account()
	if total-unused != b.words || taken != total {
		b.t.Fatalf("%d words of which %d are unused, %d taken from the pool; the blocks have %d", total, unused, taken, b.words)
	}
}

// blockSize is mostly that of an entry or a counter, and at most that of the widest ladder's.
func blockSize(r *rand.Rand) int {
	switch r.IntN(20) {
	case 0:
		return 1 + r.IntN(70_000)
	case 1:
		return 4090 + r.IntN(12)
	case 2, 3, 4:
		return 1 + r.IntN(4096)
	}
	return 1 + r.IntN(300)
}

// TestArenaBlocksAreApart allocates and releases blocks of all sizes in waves, and has chunks given back now and then.
func TestArenaBlocksAreApart(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	b := &blocks{t: t, arena: syncer.NewArena()}
	for i := range 20_000 {
		if grow := i/2000%2 == 0; len(b.all) > 0 && r.IntN(10) < 3 == grow {
			b.release(r.IntN(len(b.all)))
		} else {
			b.alloc(blockSize(r))
		}
		if r.IntN(300) == 0 {
			b.vacate(r)
		}
		if i%100 == 0 {
			b.balance()
		}
	}
	for len(b.all) > 0 {
		b.release(0)
	}
	b.balance()
	if n := b.arena.Vacated(); n > 0 {
		t.Errorf("%d words are still to be given back", n)
	}
}

// TestLaddersWiderThanAChunk has counters of about as many words as a chunk of the arena, and of many more, grown and given back.
func TestLaddersWiderThanAChunk(t *testing.T) {
	second, minute, quarter := time.Second, time.Minute, 15*time.Minute
	for _, levels := range [][]leaparray.Level{
		{{Width: second, Count: 4050}}, {{Width: second, Count: 4090}}, {{Width: second, Count: 4091}}, {{Width: second, Count: 4092}},
		{{Width: second, Count: 4093}}, {{Width: second, Count: 4096}},
		{{Width: second, Count: 3600}, {Width: minute, Count: 1440}},
		{{Width: second, Count: 4096}, {Width: minute, Count: 4096}, {Width: quarter, Count: 4096}},
	} {
		t.Run(fmt.Sprint(levels), func(t *testing.T) { wideLadder(t, levels) })
	}
}

func wideLadder(t *testing.T, levels []leaparray.Level) {
	l, err := leaparray.NewLadder(levels...)
	if err != nil {
		t.Fatal(err)
	}
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now, FlushInterval: time.Hour, Placement: syncer.Placement{Partitions: 1},
		Namespaces: map[string]syncer.Namespace{syncer.DefaultNamespace: {Ladder: l}}})
	const keys, smalls = 8, 30
	want := map[string]int64{}
	inc := func(key string, n, ts int64) {
		add(t, c, key, n, ts)
		want[key] += n
	}
	for range 3 { // counted, flushed, and counted again where the flushed block was
		for i := range keys {
			inc(fmt.Sprint("k", i), 1<<40, 0) // too much for a sparse bucket
			for j := range smalls {
				key := fmt.Sprint("small", i, ".", j)
				for ago := range int64(30) {
					inc(key, 1, t0-ago*7000)
				}
			}
		}
		flush(t, c)
		for key, n := range want {
			if got := count(t, c, key, l.Span()); got != n {
				t.Fatalf("%s counts %d, want %d", key, got, n)
			}
		}
	}
}
