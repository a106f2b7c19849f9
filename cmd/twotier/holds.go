package main

import "twotier.dev/twotier/internal/holds"

// openHolds begins to release the holds that nobody settles in time. Without Redis, their deadlines
// are lost with the counts.
func (s *server) openHolds() {
	var store holds.DeadlineStore
	if s.store.redis != nil {
		store = s.store.redis.Deadlines(holds.DeadlineKept)
	}
	s.holds.Open(s.node, store, holdMemory(s.cfg.Store), s.log)
}
