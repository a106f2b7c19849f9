package embedded

import (
	"cmp"
	"slices"
	"time"
)

const (
	// sampled is the number of keys of a partition that are compared, and victims the number of
	// them dropped at a time.
	sampled = 64
	victims = 16
	// fruitless is the number of consecutive partitions without anything to drop after which
	// makeRoom stops.
	fruitless = 64
	// warnEvery is the minimum time between two warnings about dropped keys.
	warnEvery = time.Minute
)

// candidate is a key or a record that may be dropped.
type candidate struct {
	name           string
	count, expires int64
	record         *record // nil for a key
}

// makeRoom drops keys until the memory suffices. In each sample, expired keys go first, then the
// keys with the smallest counts and, among equals, the ones that expire soonest. Keys at their
// limits go last, because they have counted more than the keys of a flood. Records, which matter
// only after a loss, have a count of zero.
func (s *Store) makeRoom(now int64) {
	gone := 0
	for none := 0; s.bytes.Load() > s.opt.MaxMemory && none < fruitless; none++ {
		if keys, some := s.randomPartition().evict(now); some {
			gone += keys
			none = 0
		}
	}
	if gone > 0 {
		s.evicted.Add(int64(gone))
		s.logEvictions()
	}
}

// randomPartition returns a random partition.
func (s *Store) randomPartition() *partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		return p
	}
	return nil
}

// evict drops some keys and records. It returns the number of keys dropped, and whether it dropped
// anything.
func (p *partition) evict(now int64) (keys int, dropped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := p.sample(now)
	slices.SortFunc(some, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.expires, b.expires))
	})
	some = some[:min(len(some), max(1, len(some)*victims/sampled))]
	for _, c := range some {
		if c.record != nil {
			p.dropRecord(c.name, c.record)
			continue
		}
		p.remove(c.name, p.keys[c.name])
		keys++
	}
	return keys, len(some) > 0
}

// sample returns some keys and as many records.
func (p *partition) sample(now int64) []candidate {
	some := make([]candidate, 0, 2*sampled)
	for name, h := range p.keys {
		c := candidate{name: name, expires: h.expires}
		if now <= h.expires {
			c.count = h.count()
		}
		if some = append(some, c); len(some) == sampled {
			break
		}
	}
	for name, rec := range p.records {
		if len(some) == cap(some) {
			break
		}
		some = append(some, candidate{name: name, expires: rec.expires, record: rec})
	}
	return some
}

// count returns the total count of a key.
func (h *hash) count() (n int64) {
	for i := range h.cells {
		n += h.cells[i].N
	}
	return n
}

// logEvictions logs that keys are dropped, unless it has done so recently.
func (s *Store) logEvictions() {
	now, last := time.Now().UnixNano(), s.warned.Load()
	if now-last > int64(warnEvery) && s.warned.CompareAndSwap(last, now) {
		s.opt.Logger.Warn("the embedded store is full: it forgets the keys that have counted "+
			"least; --max-memory is too little, or there is a flood of keys",
			"max_bytes", s.opt.MaxMemory, "forgotten_total", s.evicted.Load())
	}
}

// Evicted returns the number of keys dropped for lack of memory.
func (s *Store) Evicted() int64 { return s.evicted.Load() }

// sweep drops expired keys and records periodically.
func (p *partition) sweep(now int64) {
	if now-p.swept < sweepEvery {
		return
	}
	p.swept = now
	for name, h := range p.keys {
		if now > h.expires {
			p.remove(name, h)
		}
	}
	for name, rec := range p.records {
		if now > rec.expires {
			p.dropRecord(name, rec)
		}
	}
}
