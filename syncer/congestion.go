package syncer

// congestion bounds how many rounds may be in one exchange with a store that is slow, the way TCP
// bounds what is in flight (slow start and congestion avoidance, RFC 5681): one after an exchange
// of which nothing got through, then twice as many each time, and from half of what was too much on
// a sixteenth more. If all that is due were sent again at once, a store that can't answer so much
// in time would never answer anything.
type congestion struct {
	width     int
	threshold int // from which on it grows slowly
}

func newCongestion() congestion { return congestion{maxRounds, maxRounds} }

// note takes the outcome of an exchange of so many rounds. That of a single one says nothing about
// how many would be too many.
func (c *congestion) note(rounds int, failed bool) {
	switch {
	case failed && rounds > 1:
		c.width, c.threshold = 1, max(1, rounds/2)
	case failed:
		c.width = 1
	case c.width < c.threshold:
		c.width = min(2*c.width, c.threshold)
	default:
		c.width = min(c.width+max(1, c.width/16), maxRounds)
	}
}
