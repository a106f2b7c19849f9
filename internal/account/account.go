package account

import (
	"sync"
	"time"
)

// Account is an amount of a resource, mostly bytes of memory, that requests may use, with a limit
// for each client. A request that needs more than is free waits until others return theirs.
type Account struct {
	// Most bounds the use by all clients together, Each the use by one of them. They don't change
	// once the account is in use.
	Most, Each int64
	// Sole is for a client that may use the whole account.
	Sole Usage

	mu   sync.Mutex
	used int64
	room chan struct{} // closed when bytes are given back; nil while no client waits
}

// Usage is the amount that one client has taken from an account. The account's lock guards it.
type Usage struct {
	bytes int64
	whole bool // Each does not apply
}

// Take takes n bytes for a client as soon as they are free. It gives up at by. It reports whether
// it took them.
func (a *Account) Take(s *Usage, n int64, by time.Time) bool {
	return a.TakeUnless(nil, s, n, by)
}

// TakeUnless is like Take, and also gives up once gone is closed.
func (a *Account) TakeUnless(gone <-chan struct{}, s *Usage, n int64, by time.Time) bool {
	for {
		room, ok := a.TryTake(s, n)
		if ok {
			return true
		}
		timer := time.NewTimer(time.Until(by))
		select {
		case <-room:
			timer.Stop()
		case <-gone:
			timer.Stop()
			return false
		case <-timer.C:
			return false
		}
	}
}

// TryTake takes n bytes, or returns a channel that is closed when bytes are given back.
func (a *Account) TryTake(s *Usage, n int64) (room <-chan struct{}, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+n <= a.Most && (s.whole || s.bytes+n <= a.Each) {
		a.used += n
		s.bytes += n
		return nil, true
	}
	if a.room == nil {
		a.room = make(chan struct{})
	}
	return a.room, false
}

// Fits reports whether a client may have n bytes at all. If not, waiting does not help.
func (a *Account) Fits(s *Usage, n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return n <= a.Most && (s.whole || n <= a.Each)
}

// Trust lets a client use the whole account, such as a proxy that fronts all clients.
func (a *Account) Trust(s *Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.whole = true
}

// Release returns n bytes.
func (a *Account) Release(s *Usage, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	s.bytes -= n
	if a.room != nil {
		close(a.room)
		a.room = nil
	}
}

// InUse returns the number of bytes in use.
func (a *Account) InUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// HasWaiters reports whether a client waits for room.
func (a *Account) HasWaiters() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.room != nil
}
