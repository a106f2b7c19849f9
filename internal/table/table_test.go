package table_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/internal/table"
)

var seedFlag = flag.Uint64("seed", 0, "repeat a run")

// stored is a block and its hash in the table.
type stored struct {
	hash uint32
	ref  arena.Ref
}

func find(tab *table.Table, s stored) arena.Ref {
	return tab.Find(s.hash, func(r arena.Ref) bool { return r == s.ref })
}

// TestTableAgainstAMap inserts and removes blocks whose hashes collide often, and compares the
// table with a map.
func TestTableAgainstAMap(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	tab := table.New(slab.New(1 << 40))
	model := map[stored]bool{}
	for i := range 20_000 {
		s := stored{rnd.Uint32N(300), arena.Ref(1 + rnd.IntN(3))}
		switch grow := i/2000%2 == 0; {
		case model[s]:
			if rnd.IntN(4) > 0 != grow {
				tab.Remove(s.hash, s.ref)
				delete(model, s)
			}
		case grow || rnd.IntN(4) == 0:
			tab.Insert(s.hash, s.ref)
			model[s] = true
		}
		if i%200 == 0 {
			tab.Shrink()
			compare(t, &tab, model)
		}
	}
	tab.Drop()
	compare(t, &tab, nil)
}

func compare(t *testing.T, tab *table.Table, model map[stored]bool) {
	t.Helper()
	if tab.Len() != len(model) {
		t.Fatalf("%d blocks, want %d", tab.Len(), len(model))
	}
	walked := map[stored]bool{}
	for i := range tab.Slots() {
		if r := tab.RefAt(i); r != 0 {
			walked[stored{tab.HashAt(i), r}] = true
		}
	}
	for s := range model {
		if !walked[s] {
			t.Fatalf("%v is in no slot", s)
		}
		if find(tab, s) != s.ref {
			t.Fatalf("%v is not found", s)
		}
		if absent := (stored{s.hash, s.ref + 3}); find(tab, absent) != 0 {
			t.Fatalf("%v is found and was never there", absent)
		}
	}
}

// TestReplace replaces one block by another.
func TestReplace(t *testing.T) {
	tab := table.New(slab.New(1 << 40))
	tab.Insert(7, 1)
	for i := range tab.Slots() {
		if tab.RefAt(i) == 1 {
			tab.Replace(i, 2)
		}
	}
	if got := find(&tab, stored{7, 2}); got != 2 || tab.Len() != 1 {
		t.Fatalf("found %d, %d blocks", got, tab.Len())
	}
}

func BenchmarkFind(b *testing.B) {
	tab := table.New(slab.New(1 << 40))
	const live = 1 << 16
	all := make([]stored, live)
	for i := range all {
		all[i] = stored{rand.Uint32(), arena.Ref(i + 1)}
		tab.Insert(all[i].hash, all[i].ref)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		if find(&tab, all[n*40503%live]) == 0 {
			b.Fatal("a block is not found")
		}
	}
}
