package embedded

// Held returns the number of keys and records in the store, the memory they use, and the memory
// accounted for them, in bytes.
func (s *Store) Held() (n int, takes, believed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		n += len(p.keys) + len(p.records)
		takes += p.memoryBytes()
	}
	return n, takes, s.bytes.Load()
}
