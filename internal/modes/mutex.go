package modes

import "context"

// mutex is a lock that may be held while something is waited for. Who waits for it is at rest as
// far as testing/synctest can tell, which is not so for a sync.Mutex.
type mutex chan struct{}

func newMutex() mutex { return make(mutex, 1) }

// Lock waits until nobody has the lock. It fails if ctx is done before.
func (m mutex) Lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock gives the lock back.
func (m mutex) Unlock() { <-m }
