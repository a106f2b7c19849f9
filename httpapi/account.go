package httpapi

import (
	"sync"
	"time"
)

// account is an amount of memory, in bytes, that requests may use, with a limit for each client. A
// request that needs more than is free waits until others return theirs.
type account struct {
	most, each int64
	sole       usage // of a client that may use all of it

	mu   sync.Mutex
	used int64
	room chan struct{} // closed when bytes are given back; nil while nobody waits
}

// usage is what one client has taken from an account. The account's lock guards it.
type usage struct{ bytes int64 }

// take takes n bytes for a client as soon as they are free. It gives up at by. It reports whether
// it took them.
func (a *account) take(s *usage, n int64, by time.Time) bool {
	for {
		room, ok := a.try(s, n)
		if ok {
			return true
		}
		timer := time.NewTimer(time.Until(by))
		select {
		case <-room:
			timer.Stop()
		case <-timer.C:
			return false
		}
	}
}

// try takes n bytes, or returns a channel that is closed when bytes are given back.
func (a *account) try(s *usage, n int64) (room <-chan struct{}, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+n <= a.most && s.bytes+n <= a.each {
		a.used += n
		s.bytes += n
		return nil, true
	}
	if a.room == nil {
		a.room = make(chan struct{})
	}
	return a.room, false
}

// release returns n bytes.
func (a *account) release(s *usage, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	s.bytes -= n
	if a.room != nil {
		close(a.room)
		a.room = nil
	}
}

// inUse returns the number of bytes in use.
func (a *account) inUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}
