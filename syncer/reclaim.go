package syncer

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
)

// sparedFor is how many seconds a partition that had nothing to give is left alone.
const sparedFor = 5

// reclaim makes the largest partition give up the excess above its share, or as much as small
// partitions have taken from the reserve if that is less. It runs in the sweep, so that an
// operation that needs room never waits for the lock of another partition.
func (m *memory) reclaim() {
	if m.noStore {
		m.rankKeys()
	}
	need := m.pool.ReserveWordsUsed()
	if need <= 0 {
		return
	}
	sec := m.clock.Second()
	p, above := m.largestPartition(sec)
	if p == nil {
		m.dropList()
		return
	}
	need = min(need, above)
	p.mu.Lock()
	before, age := p.keys.Arena.TotalWords(), p.keys.MedianAge(sec)
	if !p.keepsAll() {
		p.keys.Arena.Evacuate(2 * need) // about half of it moves elsewhere
	}
	p.mu.Unlock()
	m.evacuate(p, age, before-need)
	p.mu.Lock()
	if p.keys.Shrink(); p.keys.Arena.TotalWords() >= before {
		p.sparedUntil = sec + sparedFor
	}
	p.mu.Unlock()
}

// dropList makes the partition with the most hashes of stored keys give them up, because others
// need their memory.
func (m *memory) dropList() {
	var most *partition
	var size int
	for p := range m.locked() {
		if words := p.keys.Stored.Words(); words > size {
			most, size = p, words
		}
	}
	if most != nil {
		most.mu.Lock()
		most.forgetList()
		most.keys.Stored.FullAt = time.Now()
		most.mu.Unlock()
	}
}

// largestPartition returns the largest partition above its share that may have something to give,
// and its excess in words. Without a store any partition may have something, and it is the largest
// of all: another one may hold nothing but large counts.
func (m *memory) largestPartition(sec uint32) (most *partition, above int) {
	for p := range m.locked() {
		size := p.keys.Words()
		if !m.noStore {
			size -= m.evenShare
		}
		if size > above && sec >= p.sparedUntil {
			most, above = p, size
		}
	}
	return most, above
}

// evacuate goes through all entries and moves them out of the chunks that are to be released.
// Entries that were idle for at least age are evicted instead. Until the arena is down to this many
// words, so are idle entries with counters that occupy whole chunks.
func (m *memory) evacuate(p *partition, age uint32, words int) {
	for at := 0; m.evacuateSome(p, at, age, words); at += sweepSlots {
	}
}

// evacuateSome handles one run of slots and reports whether there are more.
func (m *memory) evacuateSome(p *partition, at int, age uint32, words int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.keepsAll() && p.keys.EvacuateSome(at, sweepSlots, age, words)
}

// rankedKeys is how many keys determine which counts are small, without a store.
const rankedKeys = 256

// rankKeys determines the median of the keys' ranks, as in a sample over all partitions. Keys above
// it are not forgotten, wherever they are. Nothing is forgotten before memory is nearly full.
func (m *memory) rankKeys() {
	if m.pool.Fits(2 * arena.ChunkWords) {
		return
	}
	total := 0
	for p := range m.locked() {
		total += p.keys.Len()
	}
	var ranks []float64
	for p := range m.locked() {
		share := float64(rankedKeys) * float64(p.keys.Len()) / float64(max(1, total))
		most := int(share)
		if rand.Float64() < share-float64(most) {
			most++
		}
		ranks = p.keys.AppendRanks(ranks, most)
	}
	if len(ranks) == 0 {
		return
	}
	slices.Sort(ranks)
	for p := range m.locked() {
		p.keys.MostForgotten = ranks[len(ranks)/2]
	}
}

const (
	// A sweep takes one step per partition, with a pause before each, and at least leastSweep in
	// all: it only affects keys older than the finest level's span.
	sweepPause = 50 * time.Millisecond
	leastSweep = 2 * time.Second
	// sweepSlots is how many slots are looked at under one hold of a partition's lock.
	sweepSlots = 512
)

// runSweep goes round the partitions and drops counts that have left every window.
func (m *memory) runSweep(ctx context.Context) {
	ticker := time.NewTicker(max(sweepPause, leastSweep/time.Duration(len(m.parts))))
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-m.tight:
			m.reclaim()
			i--
		case <-ticker.C:
			m.reclaim()
			p := &m.parts[i%len(m.parts)]
			m.evacuate(p, keys.NeverIdle, math.MaxInt) // move what could not be moved before
			for at := 0; m.sweep(p, at); at += sweepSlots {
			}
			p.mu.Lock()
			p.rebuild()
			p.mu.Unlock()
		}
	}
}

// sweep checks one run of slots. It reports whether there are more.
func (m *memory) sweep(p *partition, at int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned() {
		return false
	}
	return p.keys.Sweep(at, sweepSlots)
}
