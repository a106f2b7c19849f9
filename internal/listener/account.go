package listener

import (
	"slices"
	"sync"
	"time"
)

// Account is an amount of a resource, mostly bytes of memory, that requests may use, with a limit
// for each client. A request that needs more than is free waits until others return theirs.
type Account struct {
	// Most bounds the use by all clients together, Each the use by one of them. They don't change
	// once the account is in use.
	Most, Each int64

	mu      sync.Mutex
	used    int64
	waiters []*waiter // in the order of their arrival
}

// Share is the amount that one client has taken from an account, whose lock guards it.
type Share struct {
	of      *Account
	bytes   int64
	whole   bool // Each does not apply
	blocked bool // an earlier waiter of this client does not fit; false outside grantLocked
}

// waiter is a request of a client that waits for n bytes. taken is closed once it has them.
type waiter struct {
	client *Share
	n      int64
	taken  chan struct{}
}

// NewShare returns the share of a client that has taken nothing.
func (a *Account) NewShare() *Share { return &Share{of: a} }

// Account returns the account that the share is of.
func (s *Share) Account() *Account { return s.of }

// Take takes n bytes for the client as soon as they are free, after its earlier requests. It gives
// up at by. It reports whether it took them.
func (s *Share) Take(n int64, by time.Time) bool { return s.TakeUnless(nil, n, by) }

// TakeUnless is like Take, and also gives up once gone is closed.
func (s *Share) TakeUnless(gone <-chan struct{}, n int64, by time.Time) bool {
	wait := time.Until(by)
	if wait <= 0 {
		return s.TryTake(n)
	}
	w := s.of.enqueue(s, n)
	if w == nil {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.taken:
		return true
	case <-gone:
	case <-timer.C:
	}
	return !s.of.withdraw(w)
}

// TryTake takes n bytes if they are free now, even if others wait.
func (s *Share) TryTake(n int64) bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.of.takeLocked(s, n)
}

// takeLocked takes n bytes if they are free.
func (a *Account) takeLocked(s *Share, n int64) bool {
	if a.used+n > a.Most || !s.whole && s.bytes+n > a.Each {
		return false
	}
	a.used += n
	s.bytes += n
	return true
}

// enqueue returns a waiter for n bytes, or nil if it could take them at once.
func (a *Account) enqueue(s *Share, n int64) *waiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiters) == 0 && a.takeLocked(s, n) {
		return nil
	}
	w := &waiter{s, n, make(chan struct{})}
	a.waiters = append(a.waiters, w)
	a.grantLocked()
	return w
}

// withdraw ends a waiter that gives up. It reports false if the waiter has its bytes already.
func (a *Account) withdraw(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.waiters, w)
	if i < 0 {
		return false
	}
	a.waiters = slices.Delete(a.waiters, i, i+1)
	a.grantLocked() // it may have blocked later ones
	return true
}

// grantLocked gives free bytes to waiters: to the waiters of one client in order, so that none
// starves while others come and go.
func (a *Account) grantLocked() {
	kept := a.waiters[:0]
	for _, w := range a.waiters {
		if w.client.blocked || !a.takeLocked(w.client, w.n) {
			w.client.blocked = true
			kept = append(kept, w)
		} else {
			close(w.taken)
		}
	}
	clear(a.waiters[len(kept):])
	a.waiters = kept
	for _, w := range kept {
		w.client.blocked = false
	}
}

// Fits reports whether the client may have n bytes at all. If not, waiting does not help.
func (s *Share) Fits(n int64) bool { return n <= s.of.Most && (s.whole || n <= s.of.Each) }

// Release returns n bytes.
func (s *Share) Release(n int64) {
	a := s.of
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	s.bytes -= n
	if len(a.waiters) > 0 {
		a.grantLocked()
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
	return len(a.waiters) > 0
}
