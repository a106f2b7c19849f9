package embedded

import (
	"maps"
	"slices"
	"strings"

	"twotier.dev/twotier/leaparray"
)

// Image is what a store held at some moment.
type Image struct{ partitions map[int]*partition }

// Image copies everything that the store holds. It exists for tests of loss.
func (s *Store) Image() *Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Image{s.copyOf(s.partitions)}
}

// Rewind makes the store hold what it held when the image was taken, like a failover to a replica
// that lagged behind. It exists for tests of loss.
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

// Age deletes the buckets that are older than their levels keep as of now, in unix milliseconds,
// like a store that gives each bucket a time to live. ladder returns the ladder of a namespace. It
// exists for tests of stores that are syncer.Ager.
func (s *Store) Age(ladder func(ns []byte) *leaparray.Ladder, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		p.mu.Lock()
		for name, h := range p.keys {
			ns, _, _ := strings.Cut(name, "\x00")
			had, l := len(h.buckets), ladder([]byte(ns))
			h.buckets = slices.DeleteFunc(h.buckets, func(o bucket) bool {
				b := o.bucket()
				return int(b.Level) < l.Len() &&
					b.Index < l.Index(int(b.Level), now)-l.Keep(int(b.Level))
			})
			s.bytes.Add(bucketCost * int64(len(h.buckets)-had))
			if len(h.buckets) == 0 {
				p.remove(name, h)
			}
		}
		p.mu.Unlock()
	}
}

// replace makes the store hold other partitions. s.mu is held.
func (s *Store) replace(partitions map[int]*partition) {
	s.partitions = partitions
	s.bytes.Store(0)
	for _, p := range partitions {
		s.bytes.Add(p.weight())
	}
}

// weight returns the memory that the partition takes, in bytes.
func (p *partition) weight() (bytes int64) {
	for name, h := range p.keys {
		bytes += keyCost + int64(len(name)) + bucketCost*int64(len(h.buckets))
	}
	for name, rec := range p.records {
		bytes += recordCost + int64(len(name)) + restoredCost*int64(len(rec.buckets))
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
	c := &partition{
		store: p.store, version: p.version, quieted: p.quieted, epoch: p.epoch, left: p.left,
		last: p.last, swept: p.swept,
		list: keyList{p.list.part, slices.Clone(p.list.hashes)},
		seqs: maps.Clone(p.seqs), keys: map[string]*hash{}, records: map[string]*record{},
	}
	for name, h := range p.keys {
		c.keys[name] = &hash{expires: h.expires, buckets: slices.Clone(h.buckets)}
	}
	for name, rec := range p.records {
		c.records[name] = &record{expires: rec.expires, reset: rec.reset,
			buckets: maps.Clone(rec.buckets)}
	}
	return c
}
