package redistest

import "testing"

// TestPortOfAStoppedServerIsKept stops a server: its port is free then, and no other server gets it
// before the test is over.
func TestPortOfAStoppedServerIsKept(t *testing.T) {
	port := 0
	t.Run("server", func(t *testing.T) {
		s := Start(t)
		port = s.port
		s.Stop()
		if held, err := hold(port); err != nil || held != nil {
			t.Errorf("%v, %v: another server could have port %d", held, err, port)
		}
		s.Restart(t)
	})
	held, err := hold(port)
	if err != nil || held == nil {
		t.Fatalf("%v, %v: nobody can have port %d any more", held, err, port)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}
