package room

import (
	"math"
	"time"
)

// pace measures how many keys a second the store accepts while it has any to accept. Older
// measurements fade, but only as time is spent on exchanges, so an idle store keeps its measured
// pace.
type pace struct{ keys, seconds float64 }

// paceMemory is the time spent on exchanges after which a measurement's weight has dropped to a
// third.
const paceMemory = time.Second

// newPace starts with a guess, whose weight is a tenth of paceMemory.
func newPace(perSecond float64) pace {
	const weight = 0.1
	return pace{keys: weight * perSecond, seconds: weight}
}

// record adds an exchange of this many keys.
func (p *pace) record(keys int, took time.Duration) {
	seconds := max(took, time.Microsecond).Seconds()
	fade := math.Exp(-seconds / paceMemory.Seconds())
	p.keys = p.keys*fade + float64(keys)
	p.seconds = p.seconds*fade + seconds
}

// timeFor returns how long the store takes for this many keys, at most a year.
func (p *pace) timeFor(keys int64) time.Duration {
	const year = 365 * 24 * 3600
	return time.Duration(min(year, float64(keys)*p.seconds/p.keys) * float64(time.Second))
}

// keysWithin returns how many keys the store accepts within d, at least one.
func (p *pace) keysWithin(d time.Duration) int64 {
	return max(1, int64(p.keys/p.seconds*d.Seconds()))
}
