package syncer

// congestion bounds the number of rounds in one exchange with a slow store, the way TCP bounds the
// data in flight (slow start and congestion avoidance, RFC 5681): one round after an exchange in
// which all failed, then twice as many each time, and a sixteenth more each time from half of the
// number that failed. Sending all due rounds again at once could keep the store from ever answering
// in time.
type congestion struct {
	width     int
	threshold int // from here it grows slowly
}

// maxRounds bounds the rounds of an exchange.
const maxRounds = 256

func newCongestion() congestion { return congestion{maxRounds, maxRounds} }

// record adapts the width to the outcome of an exchange of this many rounds. A single failed round
// is no evidence of how many are too many.
func (c *congestion) record(rounds int, failed bool) {
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
