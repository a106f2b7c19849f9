package rival

import (
	"context"
	"sync"

	"twotier.dev/twotier/syncer"
)

// AckStore is a syncer.Store that acknowledges everything and keeps nothing. It stands in for Redis
// where only the process that counts is measured: in earnest Redis keeps the counts, in a process
// of its own. A counter above it must not need to read back what it wrote. It may be used from
// several goroutines at once. Its zero value is ready.
type AckStore struct {
	mu       sync.Mutex
	versions [syncer.DefaultPartitions]uint64
}

// Exchange acknowledges the rounds: it answers as if it had held nothing before them.
func (s *AckStore) Exchange(_ context.Context, rounds []*syncer.Round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rounds {
		if r.Seq != 0 {
			s.versions[r.Partition]++
		}
		r.Version = s.versions[r.Partition]
		for i := range r.Keys {
			adds := r.Keys[i].Adds
			for b := range adds {
				adds[b].Stored = adds[b].N
			}
		}
	}
}
