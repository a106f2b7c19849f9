package syncer

import (
	"math"
	"time"
)

// pace measures how many keys a second the store takes while it has any to take. What was long ago
// counts less than what was just now, by time that was spent on exchanges: at rest it remembers.
type pace struct{ keys, seconds float64 }

// paceMemory is the time in exchanges after which an exchange counts for a third.
const paceMemory = time.Second

// newPace begins with a guess, which counts for a tenth of what is remembered.
func newPace(perSecond float64) pace {
	const weight = 0.1
	return pace{keys: weight * perSecond, seconds: weight}
}

// note takes in an exchange of so many keys.
func (p *pace) note(keys int, took time.Duration) {
	seconds := max(took, time.Microsecond).Seconds()
	fade := math.Exp(-seconds / paceMemory.Seconds())
	p.keys = p.keys*fade + float64(keys)
	p.seconds = p.seconds*fade + seconds
}

// takes is how long the store takes for so many keys, a year at the most.
func (p *pace) takes(keys int64) time.Duration {
	const year = 365 * 24 * 3600
	return time.Duration(min(year, float64(keys)*p.seconds/p.keys) * float64(time.Second))
}

// within is how many keys the store takes within d, at least one.
func (p *pace) within(d time.Duration) int64 {
	return max(1, int64(p.keys/p.seconds*d.Seconds()))
}
