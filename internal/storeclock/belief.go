package storeclock

import "time"

// Bounds of what is believed of the store's clock.
const (
	// smallStep is by how much the store's clock may be off what it was settled to be before that
	// is doubted: samples that are late because somebody is busy are off by less.
	smallStep = time.Second
	// drift is how much faster or slower than the machine's monotonic clock a clock may run that is
	// right: quartz is off by a tenth of it, and NTP corrects by as much (RFC 5905, section 11.3).
	drift = 500e-6
	// agreement is how close measurements are that agree.
	agreement = 250 * time.Millisecond
	// settleAfter and settleSamples are how long, and how often, measurements must have agreed on a
	// step for it to be settled.
	settleAfter   = time.Minute
	settleSamples = 5
	// farthest is the largest step that is followed for the sake of the store's clock alone.
	farthest = 10 * time.Minute
)

// Measurement is one reading of the store's clock. All three are by the machine's monotonic clock,
// which nobody sets.
type Measurement struct {
	// At is when it was taken, counted from any moment.
	At time.Duration
	// Ahead is how far the store's clock is ahead of the monotonic one, Wall how far the machine's
	// wall clock is.
	Ahead, Wall time.Duration
}

// Doubt is why the time that events are counted at can't be believed. It is empty if it can.
type Doubt string

// The doubts.
const (
	// DoubtStep: the store's clock has stepped, and it is not settled yet whether it stays there.
	DoubtStep Doubt = "step"
	// DoubtFar: it stays where it has stepped to, which is too far to follow. The time goes on as
	// before.
	DoubtFar Doubt = "far"
	// DoubtSlow: the time is ahead of the store's by more than a second, and runs at half speed
	// until it is not.
	DoubtSlow Doubt = "slow"
)

// String says it in a sentence.
func (d Doubt) String() string {
	switch d {
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

// Belief decides which of the store's clock is followed. The first measurement is, at once. Later
// ones are for as long as they stay within a second of what was settled, which moves no faster than
// the clocks of machines drift. One that is farther off is doubted, and what was followed before
// goes on by the monotonic clock, until five measurements and more, over more than a minute, agree.
// Even then a step of more than ten minutes is followed only if it leads forward, and towards the
// wall clock of this machine: it would end all windows at once, or stretch them for hours.
//
// What was followed first may have been wrong: it is taken at once, though nothing speaks for it.
// If the wall clock spoke against it by more than ten minutes, then a step to where that is, is
// followed back as well, and back at once: the two agree, and what was counted before is as wrong
// as it is. Once the wall clock has spoken for what is followed that is over: it was the wall clock
// that was wrong, as that of a machine which has just started.
//
// It reads no clock. The zero value has believed nothing yet. It is not to be used by several
// goroutines at the same time.
type Belief struct {
	started   bool
	ahead     time.Duration // what is followed
	settled   time.Duration
	at        time.Duration // when something was last followed
	candidate candidate
	// unproven is set while what is followed is what came first, and the wall clock has spoken
	// against it ever since.
	unproven bool
}

// candidate is a time that is doubted: measurements that agree with each other and not with what is
// followed.
type candidate struct {
	ahead, since time.Duration
	samples      int
	refused      bool // it is settled, and still not followed
}

// Take takes a measurement in and returns how far ahead of the monotonic clock the time to follow
// is. If anew is set then what was followed so far was wrong from the beginning: the clock is to be
// set, be it back.
func (b *Belief) Take(m Measurement) (ahead time.Duration, anew bool) {
	switch {
	case !b.started:
		b.settle(m)
		b.unproven = apart(m.Ahead, m.Wall) > farthest
	case apart(m.Ahead, b.settled) <= smallStep+b.drifted(m):
		b.follow(m)
		b.unproven = b.unproven && apart(m.Ahead, m.Wall) > farthest
	case !b.agreed(m):
	case b.unproven && apart(m.Ahead, m.Wall) <= farthest:
		b.settle(m)
		return b.ahead, true
	case b.defensible(m):
		b.settle(m)
	default:
		b.candidate.refused = true
	}
	return b.ahead, false
}

// Doubt says why the time that is followed can't be believed, and how far the store's clock is
// ahead of it.
func (b *Belief) Doubt() (why Doubt, off time.Duration) {
	switch {
	case b.candidate.samples == 0:
		return "", 0
	case b.candidate.refused:
		return DoubtFar, b.candidate.ahead - b.ahead
	}
	return DoubtStep, b.candidate.ahead - b.ahead
}

// drifted is how far clocks may have drifted apart since something was followed.
func (b *Belief) drifted(m Measurement) time.Duration {
	return time.Duration(drift * float64(m.At-b.at))
}

func (b *Belief) settle(m Measurement) {
	*b = Belief{started: true, ahead: m.Ahead, settled: m.Ahead, at: m.At}
}

// follow takes a small step. What is settled moves no farther than clocks drift: many small steps
// in one direction do not add up to a large one.
func (b *Belief) follow(m Measurement) {
	most := b.drifted(m)
	b.settled += min(max(m.Ahead-b.settled, -most), most)
	b.ahead, b.at, b.candidate = m.Ahead, m.At, candidate{}
}

// agreed counts a measurement that is doubted, and reports whether enough of them agree.
func (b *Belief) agreed(m Measurement) bool {
	if c := &b.candidate; c.samples == 0 || apart(m.Ahead, c.ahead) > agreement {
		*c = candidate{ahead: m.Ahead, since: m.At}
	}
	b.candidate.samples++
	return b.candidate.samples >= settleSamples && m.At-b.candidate.since > settleAfter
}

// defensible reports whether a step that is settled may be followed.
func (b *Belief) defensible(m Measurement) bool {
	if apart(m.Ahead, b.ahead) <= farthest {
		return true
	}
	return m.Ahead > b.ahead && apart(m.Ahead, m.Wall) < apart(b.ahead, m.Wall)
}

func apart(a, b time.Duration) time.Duration { return max(a-b, b-a) }
