package embedded

// Held returns how many keys and records the store holds, the memory that they take, and the memory
// that it believes them to take, in bytes.
func (s *Store) Held() (n int, takes, believed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		n += len(p.keys) + len(p.records)
		takes += p.weight()
	}
	return n, takes, s.bytes.Load()
}
