package embedded

import "twotier.dev/twotier/syncer"

// Expires returns the end of a key's time to live, in unix milliseconds: 0 if there is no such key,
// math.MaxInt64 if its time to live was never set.
func (s *Store) Expires(partition int, ns, key []byte) int64 {
	p := s.partition(partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.find(ns, key, s.opt.Now().UnixMilli())
	if h == nil {
		return 0
	}
	return h.expires
}

// Get returns the stored counts of a key.
func (s *Store) Get(partition int, ns, key []byte) []syncer.Bucket {
	p := s.partition(partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.find(ns, key, s.opt.Now().UnixMilli())
	if h == nil {
		return nil
	}
	return h.appendTo(nil)
}

// Sum returns the number of stored events of a key.
func (s *Store) Sum(partition int, ns, key []byte) (sum int64) {
	for _, b := range s.Get(partition, ns, key) {
		sum += b.N
	}
	return sum
}
