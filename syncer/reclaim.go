package syncer

import "time"

// sparedFor is how many seconds a partition that had nothing to give is left alone.
const sparedFor = 5

// reclaim makes the largest partition give up the excess above its share, or as much as small
// partitions have taken from the reserve if that is less. It runs in the sweep, so that an
// operation that needs room never waits for the lock of another partition.
func (m *memory) reclaim() {
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
	before, age := p.keys.BlockWords(), p.keys.MedianAge(sec)
	if !p.keepsAll() {
		p.keys.BeginEvacuation(2 * need) // about half of it moves elsewhere
	}
	p.mu.Unlock()
	m.evacuate(p, age, before-need)
	p.mu.Lock()
	if p.keys.Shrink(); p.keys.BlockWords() >= before {
		p.sparedUntil = sec + sparedFor
	}
	p.mu.Unlock()
}

// dropList makes the partition with the most hashes of stored keys give them up, because others
// need their memory.
func (m *memory) dropList() {
	var most *partition
	var size int
	for i := range m.parts {
		p := &m.parts[i]
		p.mu.Lock()
		if words := p.keys.Stored.Words(); words > size {
			most, size = p, words
		}
		p.mu.Unlock()
	}
	if most != nil {
		most.mu.Lock()
		most.forgetList()
		most.keys.Stored.FullAt = time.Now()
		most.mu.Unlock()
	}
}

// largestPartition returns the largest partition above its share that may have something to give,
// and its excess in words.
func (m *memory) largestPartition(sec uint32) (most *partition, above int) {
	for i := range m.parts {
		p := &m.parts[i]
		p.mu.Lock()
		if size := p.keys.Words() - m.evenShare; size > above && sec >= p.sparedUntil {
			most, above = p, size
		}
		p.mu.Unlock()
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
