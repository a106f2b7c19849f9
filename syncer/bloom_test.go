package syncer

import (
	"math/rand/v2"
	"testing"
)

func TestBloom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 100, 5_000, 200_000} {
		var b bloom
		in := map[uint32]bool{}
		for len(in) < n {
			h := rnd.Uint32()
			in[h] = true
			b.add(h, 1<<20)
		}
		for h := range in {
			if !b.has(h) {
				t.Fatalf("%d elements: one is missing", n)
			}
		}
		wrong := 0
		const tries = 20_000
		for range tries {
			if h := rnd.Uint32(); !in[h] && b.has(h) {
				wrong++
			}
		}
		t.Logf("%d elements: %d words, %.2f %% false", n, b.words, 100*float64(wrong)/tries)
		if wrong > tries/40 {
			t.Errorf("%d elements: %d of %d others are claimed", n, wrong, tries)
		}
	}
	var b bloom
	for range 100_000 {
		b.add(rnd.Uint32(), 1000)
	}
	if b.words > 1000 {
		t.Errorf("%d words, want at most 1000", b.words)
	}
}
