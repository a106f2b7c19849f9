package node

import "context"

// turnstile is a lock that may be held while something is waited for. Who waits for it is at rest, as far as testing/synctest can tell,
// which is not so for a sync.Mutex.
type turnstile chan struct{}

func newTurnstile() turnstile { return make(turnstile, 1) }

// Lock waits until nobody has the lock. It fails if ctx is done before.
func (t turnstile) Lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock gives the lock back.
func (t turnstile) Unlock() { <-t }
