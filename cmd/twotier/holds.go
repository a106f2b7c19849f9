package main

import "twotier.dev/twotier/internal/holds"

// openHolds begins to release the holds that nobody settles in time. Without Redis, their deadlines
// are lost with the counts.
func (s *server) openHolds() {
	var store holds.DeadlineStore
	if s.store.redis != nil {
		store = s.store.redis.Deadlines(2 * holds.ReleaseWithin)
	}
	s.holds.Open(s.node, store, s.log)
}
