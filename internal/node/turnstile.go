package node

// turnstile is a lock that may be held while something is waited for. Who waits for it is at rest, as far as testing/synctest can tell,
// which is not so for a sync.Mutex.
type turnstile chan struct{}

func newTurnstile() turnstile { return make(turnstile, 1) }

// Lock waits until nobody has the lock.
func (t turnstile) Lock() { t <- struct{}{} }

// TryLock takes the lock, unless somebody has it.
func (t turnstile) TryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock gives the lock back.
func (t turnstile) Unlock() { <-t }
