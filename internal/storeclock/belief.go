package storeclock

import "time"

// Bounds for believing the store's clock.
const (
	// smallStep is how far the store's clock may be from its settled value before it is doubted.
	// Samples that are late because a machine is busy are off by less.
	smallStep = time.Second
	// drift is how much faster or slower than the machine's monotonic clock a correct clock may
	// run: quartz is off by a tenth of it, and NTP corrects by as much (RFC 5905, section 11.3).
	drift = 500e-6
	// agreement is how close measurements must be to agree.
	agreement = 250 * time.Millisecond
	// settleAfter and settleSamples are how long, and how often, measurements must agree on a step
	// before it is settled.
	settleAfter   = time.Minute
	settleSamples = 5
	// farthest is the largest step that is followed on the evidence of the store's clock alone.
	farthest = 10 * time.Minute
)

// Measurement is one reading of the store's clock. All fields are relative to the machine's
// monotonic clock, which can't be set.
type Measurement struct {
	// At is when it was taken, counted from an arbitrary moment.
	At time.Duration
	// Ahead is how far the store's clock is ahead of the monotonic clock, and Wall how far the
	// machine's wall clock is.
	Ahead, Wall time.Duration
}

// Doubt is the reason why the time at which events are counted can't be trusted, or empty if it
// can.
type Doubt string

// The doubts.
const (
	// DoubtUnmeasured: the store's clock has not been read yet, and the machine's own time is used.
	DoubtUnmeasured Doubt = "unmeasured"
	// DoubtStep: the store's clock has stepped, and it is unclear yet whether it stays there.
	DoubtStep Doubt = "step"
	// DoubtFar: the store's clock stays at the time it has stepped to, which is too far to follow.
	// The previous time continues.
	DoubtFar Doubt = "far"
	// DoubtSlow: the time is ahead of the store's by more than a second, and runs at half speed
	// until the store has caught up.
	DoubtSlow Doubt = "slow"
)

// String returns a sentence that explains the doubt.
func (d Doubt) String() string {
	switch d {
	case DoubtUnmeasured:
		return "the store's clock has not been read yet: events are counted at this machine's time"
	case DoubtStep:
		return "the store's clock has stepped and is not believed yet: time goes on without it"
	case DoubtFar:
		return "the store's clock has stepped too far to follow: set it right, or start this " +
			"node anew"
	case DoubtSlow:
		return "the store's clock was set back: time runs at half speed until it has caught up"
	}
	return ""
}

// Belief decides which readings of the store's clock to follow. It follows the first one at once.
// It follows later ones for as long as they stay within a second of the settled time, which moves
// no faster than the clocks of machines drift. A reading further off is doubted, and the time
// followed so far continues on the monotonic clock, until at least five measurements, over more
// than a minute, agree. Even then a step of more than ten minutes is followed only if it leads
// forward, towards this machine's wall clock: any other such step would end all windows at once, or
// stretch them for hours.
//
// The first reading is followed without any evidence, so it may have been wrong. If the wall clock
// contradicts it by more than ten minutes, and the store's clock then steps to the wall clock's
// time, that step is followed at once, even backwards: the two agree, and everything counted before
// has the wrong time anyway. This exception ends once the wall clock has agreed with the followed
// time. Then it was the wall clock that was wrong, as on a machine that has just booted.
//
// A Belief reads no clock. The zero value believes nothing yet. It is not safe for concurrent use.
type Belief struct {
	started   bool
	ahead     time.Duration // the followed time
	settled   time.Duration
	at        time.Duration // when something was last followed
	candidate candidate
	// unproven is set while the first reading is still followed, and the wall clock has
	// contradicted it ever since.
	unproven bool
}

// candidate is a doubted time: measurements that agree with each other but not with the followed
// time.
type candidate struct {
	ahead, since time.Duration
	samples      int
	refused      bool // it is settled, and still not followed
}

// Accept adds a measurement and returns how far the time to follow is ahead of the monotonic clock.
// If anew is set, the time followed so far was wrong from the beginning, and the clock should be
// set, even backwards.
func (b *Belief) Accept(m Measurement) (ahead time.Duration, anew bool) {
	switch {
	case !b.started:
		b.settle(m)
		b.unproven = absDiff(m.Ahead, m.Wall) > farthest
	case absDiff(m.Ahead, b.settled) <= smallStep+b.maxDrift(m):
		b.follow(m)
		b.unproven = b.unproven && absDiff(m.Ahead, m.Wall) > farthest
	case !b.countAgreement(m):
	case b.unproven && absDiff(m.Ahead, m.Wall) <= farthest:
		b.settle(m)
		return b.ahead, true
	case b.mayFollow(m):
		b.settle(m)
	default:
		b.candidate.refused = true
	}
	return b.ahead, false
}

// Doubt returns the reason why the followed time can't be trusted, and how far the store's clock is
// ahead of it.
func (b *Belief) Doubt() (why Doubt, off time.Duration) {
	switch {
	case !b.started:
		return DoubtUnmeasured, 0
	case b.candidate.samples == 0:
		return "", 0
	case b.candidate.refused:
		return DoubtFar, b.candidate.ahead - b.ahead
	}
	return DoubtStep, b.candidate.ahead - b.ahead
}

// maxDrift returns how far clocks may have drifted apart since a reading was last followed.
func (b *Belief) maxDrift(m Measurement) time.Duration {
	return time.Duration(drift * float64(m.At-b.at))
}

func (b *Belief) settle(m Measurement) {
	*b = Belief{started: true, ahead: m.Ahead, settled: m.Ahead, at: m.At}
}

// follow takes a small step. The settled time moves no faster than clocks drift, so many small
// steps in one direction do not add up to a large one.
func (b *Belief) follow(m Measurement) {
	most := b.maxDrift(m)
	b.settled += min(max(m.Ahead-b.settled, -most), most)
	b.ahead, b.at, b.candidate = m.Ahead, m.At, candidate{}
}

// countAgreement counts a doubted measurement and reports whether enough of them agree.
func (b *Belief) countAgreement(m Measurement) bool {
	if c := &b.candidate; c.samples == 0 || absDiff(m.Ahead, c.ahead) > agreement {
		*c = candidate{ahead: m.Ahead, since: m.At}
	}
	b.candidate.samples++
	return b.candidate.samples >= settleSamples && m.At-b.candidate.since > settleAfter
}

// mayFollow reports whether a settled step may be followed.
func (b *Belief) mayFollow(m Measurement) bool {
	if absDiff(m.Ahead, b.ahead) <= farthest {
		return true
	}
	return m.Ahead > b.ahead && absDiff(m.Ahead, m.Wall) < absDiff(b.ahead, m.Wall)
}

func absDiff(a, b time.Duration) time.Duration { return max(a-b, b-a) }
