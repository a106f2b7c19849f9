package peer

import (
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
)

// sampleAge is for how long the best reading of another process's clock is relied on, while others
// come in.
const sampleAge = 10 * time.Second

// ahead is how far the clock of another process is ahead of this one's, at the least: a reply says
// what it showed before the reply came.
type ahead struct {
	own *elapsed.Clock

	mu    sync.Mutex
	known bool
	least time.Duration
	at    time.Duration // when that was read
}

// heard notes what the other clock showed when a reply that has just come was sent. The quickest
// reply tells most; it holds for a while, as clocks drift apart.
func (a *ahead) heard(theirs time.Duration) {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if least := theirs - now; !a.known || least > a.least || now-a.at > sampleAge {
		a.known, a.least, a.at = true, least, now
	}
}

// met reports whether anything is known.
func (a *ahead) met() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// until returns what the other clock shows when a budget is used up, or a little less; 0 if that is
// not known.
func (a *ahead) until(budget time.Duration) time.Duration {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		return 0
	}
	return max(now+budget+a.least, time.Microsecond)
}
