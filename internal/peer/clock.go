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
// bound: a reply tells what the other clock showed before the reply arrived.
type clockOffset struct {
	own *elapsed.Clock

	mu    sync.Mutex
	known bool
	least time.Duration
	at    time.Duration // when least was read
}

// noteReply takes in what the other clock showed when a reply that has just arrived was sent. The
// quickest reply gives the tightest bound. It is replaced after sampleAge, because clocks drift
// apart.
func (a *clockOffset) noteReply(theirs time.Duration) {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if least := theirs - now; !a.known || least > a.least || now-a.at > sampleAge {
		a.known, a.least, a.at = true, least, now
	}
}

// offsetKnown reports whether anything is known about the other clock.
func (a *clockOffset) offsetKnown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// until returns what the other clock will show when a budget is used up, or slightly less. It
// returns 0 if the other clock is not known.
func (a *clockOffset) until(budget time.Duration) time.Duration {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		return 0
	}
	return max(now+budget+a.least, time.Microsecond)
}
