package embedded

import (
	"maps"
	"slices"
)

// Image is a copy of a store's data.
type Image struct{ partitions map[int]*partition }

// Image copies all data of the store. It exists for tests of loss.
func (s *Store) Image() *Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Image{s.copyOf(s.partitions)}
}

// Rewind restores the data of an image, like a failover to a replica that lagged behind. It exists
// for tests of loss.
func (s *Store) Rewind(to *Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(s.copyOf(to.partitions))
}

// Flush drops everything, as FLUSHALL does. It exists for tests of loss.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(map[int]*partition{})
}

// replace replaces the store's partitions. s.mu is held.
func (s *Store) replace(partitions map[int]*partition) {
	s.partitions = partitions
	s.bytes.Store(0)
	for _, p := range partitions {
		s.bytes.Add(p.memoryBytes())
	}
}

// memoryBytes returns the memory used by the partition, in bytes.
func (p *partition) memoryBytes() (bytes int64) {
	for name, h := range p.keys {
		bytes += keyCost + int64(len(name)) + cellCost*int64(len(h.cells))
	}
	for name, rec := range p.records {
		bytes += recordCost + int64(len(name)) + cellCost*int64(len(rec.cells))
	}
	return bytes
}

func (s *Store) copyOf(partitions map[int]*partition) map[int]*partition {
	copies := map[int]*partition{}
	for id, p := range partitions {
		copies[id] = p.copy()
	}
	return copies
}

func (p *partition) copy() *partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := newPartition(p.store)
	c.version, c.quieted, c.epoch, c.left = p.version, p.quieted, p.epoch, p.left
	c.last, c.swept, c.seqs = p.last, p.swept, maps.Clone(p.seqs)
	c.expired = maps.Clone(p.expired)
	c.list = keyList{p.list.part, slices.Clone(p.list.hashes)}
	for name, h := range p.keys {
		c.keys[name] = &hash{name: name, expires: h.expires, again: h.again,
			cells: slices.Clone(h.cells),
			log:   slices.Clone(h.log)}
	}
	for name, rec := range p.records {
		c.records[name] = &record{expires: rec.expires, reset: rec.reset,
			cells: slices.Clone(rec.cells)}
	}
	return c
}
