package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"twotier/internal/embedded"
	"twotier/syncer"
)

// TestPoolBlocksAreZeroAndApart takes and gives back random blocks, each full of its own number while it is in use.
func TestPoolBlocksAreZeroAndApart(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p := syncer.NewPool()
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
	if idle := p.Idle(); idle > 2<<20 {
		t.Errorf("%d bytes are kept although nothing is in use", idle)
	}
}

// TestPoolMemoryGoesWithTheCounter opens and closes counters that nobody keeps.
func TestPoolMemoryGoesWithTheCounter(t *testing.T) {
	if !syncer.HugePages {
		t.Skip("the Go heap is used instead")
	}
	before := mapped(t)
	var most int64
	for range 30 {
		c, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{}), Placement: syncer.Placement{Partitions: 4}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Open(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			add(t, c, fmt.Sprint("k", i), 1, 0)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		most = max(most, mapped(t)-before)
	}
	const one = 32 << 20
	if most < one {
		t.Fatalf("only %d bytes more were mapped than before", most)
	}
	deadline := time.Now().Add(10 * time.Second)
	for mapped(t)-before > 3*one {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes more are mapped than before", mapped(t)-before)
		}
		runtime.GC()
		runtime.Gosched()
	}
}

// mapped is the size of this process's address space.
func mapped(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages int64
	if _, err := fmt.Sscan(string(b), &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
