package slab_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/slab"
)

var seedFlag = flag.Uint64("seed", 0, "repeat a run")

// TestPoolBlocksAreZeroAndApart takes and gives back random blocks, each of which holds its own
// number while it is in use.
func TestPoolBlocksAreZeroAndApart(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p := slab.New(1 << 40)
	type numbered struct {
		words  []uint64
		number uint64
	}
	var inUse []numbered
	check := func(i int) {
		for _, w := range inUse[i].words {
			if w != inUse[i].number {
				t.Fatalf("block %d of %d words holds %d", inUse[i].number, len(inUse[i].words), w)
			}
		}
	}
	for number := range uint64(20_000) {
		// Waves of growth and decay, so that whole slabs become free.
		if grow := number/4000%2 == 0; len(inUse) > 0 && r.IntN(10) < 3 == grow {
			i := r.IntN(len(inUse))
			check(i)
			p.Give(inUse[i].words)
			inUse[i] = inUse[len(inUse)-1]
			inUse = inUse[:len(inUse)-1]
			continue
		}
		n := 1 << (4 + r.IntN(9))
		var b []uint64
		if r.IntN(500) == 0 {
			b = p.Take(1 + r.IntN(300_000)) // of any size
		} else {
			b = p.TakeAbout(max(16, n>>r.IntN(3)), n)
		}
		for j, w := range b {
			if w != 0 {
				t.Fatalf("word %d of a new block of %d holds %d", j, len(b), w)
			}
			b[j] = number + 1
		}
		inUse = append(inUse, numbered{b, number + 1})
	}
	for i := range inUse {
		check(i)
		p.Give(inUse[i].words)
	}
	if used := p.UsedWords(); used != 0 {
		t.Errorf("%d words are in use although all were given back", used)
	}
	if idle := p.IdleBytes(); idle > 2<<20 {
		t.Errorf("%d bytes are kept although nothing is in use", idle)
	}
}

// TestBudget takes blocks up to the reserve, into it and beyond it.
func TestBudget(t *testing.T) {
	const words = 1 << 15
	p := slab.New(8 * words)
	if c := p.CommonWords(); c <= words*9/10 || c >= words {
		t.Fatalf("%d of %d words are no reserve", c, words)
	}
	take := func(n int64) { p.Take(int(n)) }
	state := func() [4]bool {
		return [4]bool{p.Fits(1), p.FitsReserve(1), p.ReserveWordsUsed() > 0, p.Exhausted()}
	}
	steps := []struct {
		used int64
		want [4]bool
	}{
		{p.CommonWords() - 1, [4]bool{true, true, false, false}},
		{p.CommonWords(), [4]bool{false, true, false, false}},
		{words - 1, [4]bool{false, true, true, false}},
		{words, [4]bool{false, false, true, false}},
		{words + words/4, [4]bool{false, false, true, false}},
		{words + words/4 + 1, [4]bool{false, false, true, true}},
	}
	for _, s := range steps {
		take(s.used - p.UsedWords())
		if got := state(); got != s.want {
			t.Errorf("with %d of %d words in use: fits, fits the reserve, uses it, exhausted: "+
				"%v, want %v",
				s.used, words, got, s.want)
		}
	}
}

func BenchmarkTakeGive(b *testing.B) {
	p := slab.New(1 << 40)
	b.ReportAllocs()
	for b.Loop() {
		p.Give(p.Take(4096))
	}
}
