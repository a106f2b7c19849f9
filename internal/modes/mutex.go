package modes

import "context"

// mutex is a lock that may be held while waiting. Unlike waiting for a sync.Mutex, waiting for it
// is durably blocking for testing/synctest.
type mutex chan struct{}

func newMutex() mutex { return make(mutex, 1) }

// Lock waits until the lock is free. It fails if ctx is done first.
func (m mutex) Lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock releases the lock.
func (m mutex) Unlock() { <-m }
