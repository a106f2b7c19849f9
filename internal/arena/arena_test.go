package arena_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/internal/slab"
)

var seedFlag = flag.Uint64("seed", 0, "repeat a run")

// blocks is an arena and the blocks in it, each of which holds its own number.
type blocks struct {
	t      *testing.T
	pool   *slab.Pool
	arena  arena.Arena
	all    []block
	number uint64
	words  int
}

type block struct {
	ref    arena.Ref
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

// evacuate makes the arena give chunks back. It moves some blocks now and leaves others for later.
func (b *blocks) evacuate(r *rand.Rand) {
	b.arena.Evacuate(r.IntN(20_000))
	for i := 0; i < len(b.all); i++ {
		if b.arena.MustMove(b.all[i].ref) && r.IntN(10) > 0 {
			b.alloc(b.all[i].words)
			b.release(i) // the new one takes its place
		}
	}
}

func (b *blocks) balance() {
	total, unused, taken := b.arena.TotalWords(), b.arena.UnusedWords(), int(b.pool.UsedWords())
	if total-unused != b.words || taken != total {
		b.t.Fatalf("%d words of which %d are unused, %d taken from the pool; the blocks have %d",
			total, unused, taken, b.words)
	}
}

// blockSize returns a random size: mostly that of an entry or a counter, and at most that of the
// widest ladder.
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

// TestArenaBlocksAreApart allocates and releases blocks of all sizes in waves, and evacuates chunks
// from time to time.
func TestArenaBlocksAreApart(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	pool := slab.New(1 << 40)
	b := &blocks{t: t, pool: pool, arena: arena.New(pool)}
	for i := range 20_000 {
		if grow := i/2000%2 == 0; len(b.all) > 0 && r.IntN(10) < 3 == grow {
			b.release(r.IntN(len(b.all)))
		} else {
			b.alloc(blockSize(r))
		}
		if r.IntN(300) == 0 {
			b.evacuate(r)
		}
		if i%100 == 0 {
			b.balance()
		}
	}
	for len(b.all) > 0 {
		b.release(0)
	}
	b.balance()
	if b.arena.Drop(); b.arena.TotalWords() != 0 || b.pool.UsedWords() != 0 {
		t.Errorf("%d words are left, %d of the pool", b.arena.TotalWords(), b.pool.UsedWords())
	}
	if n := b.arena.EvacuatingWords(); n > 0 {
		t.Errorf("%d words are still to be given back", n)
	}
}

// TestEvacuateGivesBackTheEmptiestChunks fills an arena, releases most of it and moves the rest.
func TestEvacuateGivesBackTheEmptiestChunks(t *testing.T) {
	pool := slab.New(1 << 40)
	b := &blocks{t: t, pool: pool, arena: arena.New(pool)}
	for range 4000 {
		b.alloc(16)
	}
	full := b.arena.TotalWords()
	for i := len(b.all) - 1; i >= 0; i-- {
		if i%8 != 0 {
			b.release(i)
		}
	}
	if !b.arena.Sparse() {
		t.Fatalf("%d of %d words are unused", b.arena.UnusedWords(), b.arena.TotalWords())
	}
	b.arena.Evacuate(full / 2)
	for i := 0; i < len(b.all); i++ {
		for b.arena.MustMove(b.all[i].ref) {
			b.alloc(16)
			b.release(i)
		}
	}
	if total := b.arena.TotalWords(); total > full*6/10 || b.arena.EvacuatingWords() != 0 {
		t.Errorf("%d of %d words are left, %d to be given back", total, full,
			b.arena.EvacuatingWords())
	}
	b.balance()
}

func BenchmarkAllocRelease(b *testing.B) {
	a := arena.New(slab.New(1 << 40))
	const live = 1 << 16
	refs := make([]arena.Ref, live)
	size := func(i int) int { return 8 + i%24 }
	for i := range refs {
		refs[i] = a.Alloc(size(i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		i := n * 40503 % live
		a.Release(refs[i], size(i))
		refs[i] = a.Alloc(size(i))
	}
}
