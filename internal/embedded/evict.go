package embedded

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// sampled is the number of keys that are compared with each other, and victims the largest
	// number of them that are dropped.
	sampled = 64
	victims = 16
	// spareShare is the share of the memory that is freed in addition, so that not every round has
	// to draw a sample.
	spareShare = 1024
	// warnEvery is the minimum time between two warnings about dropped keys.
	warnEvery = time.Minute
)

// candidate is a key or a record that may be dropped.
type candidate struct {
	p    *partition
	h    *hash  // nil for a record
	name string // of a record
	// rank orders candidates. Among equals, companions come after other keys, and then the key that
	// expires last comes last.
	rank      float64
	companion bool
	expires   int64
}

func compareCandidates(a, b candidate) int {
	if a.rank == b.rank && a.companion != b.companion {
		if a.companion {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.expires, b.expires))
}

// makeRoom drops keys if the memory does not suffice: in each sample the lowest ones, see rank.
// Samples are drawn uniformly from all keys of the store, however they spread over partitions. So a
// key above two thirds of all keys stays, except with a probability of less than 1e-11 for each
// sample: 49 of 64 sampled keys would have to be of the upper third.
func (s *Store) makeRoom(now int64) {
	if s.bytes.Load() <= s.opt.MaxMemory {
		return
	}
	gone, enough := 0, s.opt.MaxMemory-s.opt.MaxMemory/spareShare
	list, ends := s.sizes()
	for s.bytes.Load() > enough {
		some := sample(list, ends, now)
		if len(some) == 0 {
			break
		}
		slices.SortFunc(some, compareCandidates)
		for _, c := range some[:max(1, len(some)*victims/sampled)] {
			if s.bytes.Load() > enough && c.drop() {
				gone++
			}
		}
	}
	if gone > 0 {
		s.evicted.Add(int64(gone))
		s.logEvictions()
	}
}

// sample draws keys and records at random from the result of sizes. It may draw one several times.
func sample(list []*partition, ends []int64, now int64) []candidate {
	if len(list) == 0 {
		return nil
	}
	some := make([]candidate, 0, sampled)
	for range sampled {
		at, _ := slices.BinarySearch(ends, 1+rand.Int64N(ends[len(ends)-1]))
		if c, found := list[at].draw(now); found {
			some = append(some, c)
		}
	}
	return some
}

// sizes returns the partitions that are not empty, and the running total of their sizes.
func (s *Store) sizes() (list []*partition, ends []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := int64(0)
	for _, p := range s.partitions {
		if n := p.size.Load(); n > 0 {
			sum += n
			list, ends = append(list, p), append(ends, sum)
		}
	}
	return list, ends
}

// draw returns a random key, or a record. Which record it is does not matter, because all of them
// go before any key.
func (p *partition) draw(now int64) (c candidate, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.order) + len(p.records)
	if n == 0 {
		return candidate{}, false
	}
	if at := rand.IntN(n); at < len(p.order) {
		h := p.order[at]
		return candidate{p: p, h: h, rank: p.rank(h, now), companion: h.companion,
			expires: h.expires}, true
	}
	for name, rec := range p.records {
		c = candidate{p: p, name: name, expires: rec.expires}
		break
	}
	return c, true
}

// drop drops a candidate if it still exists. It reports whether it has dropped a key.
func (c *candidate) drop() bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.h == nil {
		if rec := c.p.records[c.name]; rec != nil {
			c.p.dropRecord(c.name, rec)
		}
		return false
	}
	if c.p.keys[c.h.name] != c.h {
		return false
	}
	c.p.remove(c.h)
	return true
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
	for _, h := range p.keys {
		if now > h.expires {
			p.remove(h)
		}
	}
	for name, rec := range p.records {
		if now > rec.expires {
			p.dropRecord(name, rec)
		}
	}
}
