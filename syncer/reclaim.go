package syncer

import (
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
)

const (
	// ageSample is how many entries are sampled for the median age of a partition.
	ageSample = 64
	// sparedFor is how many seconds a partition that had nothing to give is left alone.
	sparedFor = 5
	// neverIdle is an age that no entry has.
	neverIdle = low24 + 1
)

// reclaim makes the largest partition give up the excess above its share, or as much as small
// partitions have taken from the reserve if that is less. It runs in the sweep, so that an
// operation that needs room never waits for the lock of another partition.
func (m *memory) reclaim() {
	need := m.pool.ReserveUsed()
	if need <= 0 {
		return
	}
	sec := m.clock.second()
	p, above := m.largest(sec)
	if p == nil {
		m.dropList()
		return
	}
	need = min(need, above)
	p.mu.Lock()
	before := p.keys.arena.Total()
	age := p.keys.medianAge(sec)
	if !p.keepsAll() {
		p.keys.arena.Evacuate(2 * need) // about half of it moves elsewhere
	}
	p.mu.Unlock()
	m.evacuate(p, age, before-need)
	p.mu.Lock()
	p.keys.table.Shrink()
	if p.keys.arena.Total() >= before {
		p.keys.sparedUntil = sec + sparedFor
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
		if words := p.keys.stored.set.Words(); words > size {
			most, size = p, words
		}
		p.mu.Unlock()
	}
	if most != nil {
		most.mu.Lock()
		most.forgetList()
		most.keys.stored.full = time.Now()
		most.mu.Unlock()
	}
}

// largest returns the largest partition above its share that may have something to give, and its
// excess in words.
func (m *memory) largest(sec uint32) (most *partition, above int) {
	for i := range m.parts {
		p := &m.parts[i]
		p.mu.Lock()
		if size := p.keys.words() - m.share; size > above && sec >= p.keys.sparedUntil {
			most, above = p, size
		}
		p.mu.Unlock()
	}
	return most, above
}

// medianAge returns the median time since the last use of the entries, in seconds, estimated from a
// sample, but at least evictableAge. The partition is locked.
func (s *keyspace) medianAge(sec uint32) uint32 {
	ages := make([]uint32, 0, ageSample)
	for range min(s.table.Slots(), 4*ageSample) {
		s.evictSlot = (s.evictSlot + 1) % s.table.Slots()
		if at := s.table.At(s.evictSlot); at != 0 {
			ages = append(ages, s.entry(at).idle(sec))
		}
	}
	if len(ages) == 0 {
		return neverIdle
	}
	slices.Sort(ages)
	return max(evictableAge, ages[len(ages)/2])
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
	k := &p.keys
	if p.keepsAll() || k.arena.Evacuating() == 0 && k.arena.Total() <= words {
		return false
	}
	sec := m.clock.second()
	for i := at; i < min(at+sweepSlots, k.table.Slots()); i++ {
		r := k.table.At(i)
		if r == 0 {
			continue
		}
		e := k.entry(r)
		mustMove := k.mustMove(r, e)
		if !mustMove && !(k.arena.Total() > words && k.arena.Whole(e.synced())) {
			continue
		}
		idle := e.idle(sec)
		spared := e.has(flagLimit) && (mustMove || idle < limitAge) // moved instead, if possible
		if idle >= age && evictable(e) && !spared {
			k.drop(k.table.HashAt(i), r)
			k.evicted++
			i-- // another slot may have moved here
		} else if mustMove {
			k.evacuate(i, r, e)
		}
	}
	return at+sweepSlots < k.table.Slots()
}

// mustMove reports whether an entry, or one of its counters, is in a chunk that is to be released.
func (s *keyspace) mustMove(r arena.Ref, e entry) bool {
	return s.arena.MustMove(r) || s.arena.MustMove(e.synced()) || s.arena.MustMove(e.pending())
}

// evacuate moves an entry's counters to other chunks, and the entry itself unless something refers
// to it.
func (s *keyspace) evacuate(slot int, r arena.Ref, e entry) {
	e.setSynced(evacuateCounter(&s.arena, e.synced()))
	e.setPending(evacuateCounter(&s.arena, e.pending()))
	if !s.arena.MustMove(r) || e.has(flagDirty|flagBusy|flagParked|flagShared) {
		return
	}
	to := s.arena.Alloc(len(e))
	copy(s.arena.Words(to, len(e)), e)
	s.table.Replace(slot, to)
	s.arena.Release(r, len(e))
}
