package main

import "context"

// kill ends the server as SIGKILL ends its process, for demonstrations: it hands over nothing,
// flushes nothing and leaves the cluster without an announcement. Connections are cut, and what was
// only in memory is lost.
func (s *server) kill() {
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	if s.ring != nil {
		_ = s.ring.Abandon() // the other members find out
	}
	_ = s.closeDoors(dead)
	s.history.Close()
	s.holds.Close()
	_ = s.closeParts(dead, dead) // its error lists the lost counts
}
