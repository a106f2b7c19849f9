package httpapi

import (
	"sync"
	"time"
)

// account is bytes of memory that requests may take, of which each client may have a part only. Who
// wants more than there is waits for those who give theirs back.
type account struct {
	most, each int64
	sole       share // of who may have all of it

	mu   sync.Mutex
	used int64
	room chan struct{} // closed when something is given back; nil while nobody waits
}

// share is what one client has of an account, which guards it.
type share struct{ held int64 }

// take takes n bytes for a client as soon as there are as many, until that time at the latest. It
// reports whether it has.
func (a *account) take(s *share, n int64, by time.Time) bool {
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

// try takes n bytes, or returns what is closed when trying again is worth while.
func (a *account) try(s *share, n int64) (room <-chan struct{}, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+n <= a.most && s.held+n <= a.each {
		a.used += n
		s.held += n
		return nil, true
	}
	if a.room == nil {
		a.room = make(chan struct{})
	}
	return a.room, false
}

// give gives n bytes back.
func (a *account) give(s *share, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	s.held -= n
	if a.room != nil {
		close(a.room)
		a.room = nil
	}
}

// taken returns how many bytes are in use.
func (a *account) taken() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}
