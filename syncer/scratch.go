package syncer

import (
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// scratch is memory that a batcher reuses. Only the batcher's goroutine uses it.
type scratch struct {
	free    []*rounds.Round
	weighed []weighed
	sent    []*store.Round
}

// round returns an empty round of a partition.
func (s *scratch) round(b *ledger) *rounds.Round {
	n := len(s.free)
	if n == 0 {
		return b.newRound()
	}
	r := s.free[n-1]
	s.free = s.free[:n-1]
	r.Reset(b.id, b.outbox.Writer, b.mostKeys)
	return r
}

// recycle keeps a round's memory for reuse, unless it is unusually large.
func (s *scratch) recycle(b *ledger, r *rounds.Round) {
	if len(s.free) < maxRounds && cap(r.Keys) <= 4*b.mostKeys {
		s.free = append(s.free, r)
	}
}

// storeRounds returns the halves of rounds that the store gets, until the next call.
func (s *scratch) storeRounds(rounds []*rounds.Round) []*store.Round {
	s.sent = s.sent[:0]
	for _, r := range rounds {
		s.sent = append(s.sent, &r.Round)
	}
	return s.sent
}
