package syncer

import (
	"math"
	"time"
)

// pace measures how many keys a second the store takes while it has any to take. What was long ago counts less than what was
// just now, by time that was spent on exchanges: at rest it remembers.
type pace struct {
	keys, seconds float64
	least         float64 // it is never taken to be slower, in keys a second
}

// paceMemory is the time in exchanges after which an exchange counts for a third.
const paceMemory = time.Second

// note takes in an exchange of so many keys.
func (p *pace) note(keys int, took time.Duration) {
	seconds := max(took, time.Microsecond).Seconds()
	fade := math.Exp(-seconds / paceMemory.Seconds())
	p.keys = p.keys*fade + float64(keys)
	p.seconds = p.seconds*fade + seconds
}

// within is how many keys the store takes within d, at least one.
func (p *pace) within(d time.Duration) int64 {
	each := p.least
	if p.seconds > 0 {
		each = max(each, p.keys/p.seconds)
	}
	return max(1, int64(each*d.Seconds()))
}
