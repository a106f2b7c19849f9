package peer

import (
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
)

// sampleAge is how long the best reading of another process's clock is kept although newer readings
// come in.
const sampleAge = 10 * time.Second

// clockOffset estimates how far the clock of another process is ahead of this one's, as a lower
// bound: a reply carries the other clock's time from before the reply arrived.
type clockOffset struct {
	own *elapsed.Clock

	mu    sync.Mutex
	known bool
	least time.Duration
	at    time.Duration // when least was read
}

// recordReply records the other clock's time in a reply that has just arrived. The quickest reply
// gives the tightest bound. It is replaced after sampleAge, because clocks drift apart.
func (a *clockOffset) recordReply(theirs time.Duration) {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if least := theirs - now; !a.known || least > a.least || now-a.at > sampleAge {
		a.known, a.least, a.at = true, least, now
	}
}

// offsetKnown reports whether the other clock has been read.
func (a *clockOffset) offsetKnown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// deadlineIn returns the other clock's time, or slightly less, at the end of a budget. It returns 0
// if the other clock has not been read.
func (a *clockOffset) deadlineIn(budget time.Duration) time.Duration {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		return 0
	}
	return max(now+budget+a.least, time.Microsecond)
}
