package hashset_test

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/hashset"
	"twotier.dev/twotier/internal/slab"
)

// TestSet compares a set with a map, for hashes that are spread out and for some that are not.
func TestSet(t *testing.T) {
	pool := slab.New(1 << 30)
	for name, draw := range map[string]func(r *rand.Rand) uint32{
		"spread": func(r *rand.Rand) uint32 { return r.Uint32() },
		"dense":  func(r *rand.Rand) uint32 { return 2 + r.Uint32N(30_000) },
		"low":    func(r *rand.Rand) uint32 { return 2 + r.Uint32N(64)<<16 },
		"last":   func(r *rand.Rand) uint32 { return ^r.Uint32N(5_000) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			set, want := hashset.New(pool), map[uint32]bool{}
			for range 20_000 {
				before, growth, hash := set.Words(), set.Growth(), draw(r)
				set.Add(hash)
				if want[hash] = true; set.Words() != before+growth {
					t.Fatalf("%d words after %d and a growth of %d", set.Words(), before, growth)
				}
			}
			for range 20_000 {
				if hash := draw(r); set.Has(hash) != want[hash] {
					t.Fatalf("%d is in the set: %v", hash, !want[hash])
				}
			}
			for hash := range want {
				if !set.Has(hash) {
					t.Fatalf("%d is not in the set", hash)
				}
			}
			if set.Len() != len(want) {
				t.Errorf("%d hashes, want %d", set.Len(), len(want))
			}
			if set.Drop(); set.Len() != 0 || set.Has(draw(r)) {
				t.Error("not empty after Drop")
			}
		})
	}
	if used := pool.UsedWords(); used != 0 {
		t.Errorf("%d words are still in use", used)
	}
}

// TestZero checks that 0 and 1, which share a value, are both found.
func TestZero(t *testing.T) {
	for _, hash := range []uint32{0, 1} {
		set := hashset.New(slab.New(1 << 20))
		if set.Has(hash) {
			t.Errorf("an empty set has %d", hash)
		}
		if set.Add(hash); !set.Has(hash) {
			t.Errorf("%d is missed", hash)
		}
	}
}
