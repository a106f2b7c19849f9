package syncer

// scratch is memory that a batcher reuses. Only the batcher's goroutine uses it.
type scratch struct {
	free    []*round
	weighed []weighed
	sent    []*Round
}

// round returns an empty round of a partition.
func (s *scratch) round(b *ledger) *round {
	n := len(s.free)
	if n == 0 {
		return b.newRound()
	}
	r := s.free[n-1]
	s.free = s.free[:n-1]
	r.reset()
	r.Partition, r.Writer, r.most = b.id, b.outbox.writer, b.mostKeys
	r.mostReads = flushReads
	return r
}

// recycle keeps a round's memory for reuse, unless it is unusually large.
func (s *scratch) recycle(b *ledger, r *round) {
	if len(s.free) < maxRounds && cap(r.Keys) <= 4*b.mostKeys {
		s.free = append(s.free, r)
	}
}

// public returns the halves of rounds that the store gets, until the next call.
func (s *scratch) public(rounds []*round) []*Round {
	s.sent = s.sent[:0]
	for _, r := range rounds {
		s.sent = append(s.sent, &r.Round)
	}
	return s.sent
}
