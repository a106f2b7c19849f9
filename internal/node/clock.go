package node

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is the time that events are counted at: that of the store, so that all who share a store share a time. It is
// driven by the machine's monotonic clock and corrected by what Follow is told, so a step of the wall clock does nothing by
// itself.
//
// It never goes backwards. When it turns out to be behind, it steps forward; when it is ahead, it runs at half speed
// until the store's clock has caught up.
type Clock struct {
	start time.Time
	wall  func() time.Time
	mono  func() time.Duration
	state atomic.Pointer[clockState]
	shown atomic.Int64 // the latest answer of Now
	mu    sync.Mutex   // held by Follow
}

// clockState: at monotonic time m the clock shows the later of m + offset, and t0 + half of what has passed since m0.
type clockState struct {
	offset time.Duration // from monotonic time to unix time
	m0, t0 time.Duration
	ahead  time.Duration
}

// deadBand is how small a correction must be to be taken for noise of the measurement.
const deadBand = time.Millisecond

// NewClock returns a clock that shows the machine's time until it is told better. wall is read
// once, and for each measurement of the store's clock, mono at every reading; nil means the
// machine's.
func NewClock(wall func() time.Time, mono func() time.Duration) *Clock {
	if wall == nil {
		wall = time.Now
	}
	if mono == nil {
		began := time.Now()
		mono = func() time.Duration { return time.Since(began) }
	}
	c := &Clock{start: wall(), wall: wall, mono: mono}
	offset := time.Duration(c.start.UnixNano()) - mono()
	c.state.Store(&clockState{offset: offset, t0: offset + mono(), m0: mono()})
	return c
}

func (s *clockState) at(m time.Duration) time.Duration {
	return max(m+s.offset, s.t0+(m-s.m0)/2)
}

// Now returns the time in unix milliseconds. A reader that is held up between the state and the monotonic clock, while
// Follow slows down, would run ahead of what the next one sees: no answer is earlier than one that was given. shown is
// written a thousand times a second at most, so readers share it.
func (c *Clock) Now() int64 {
	now := int64(c.state.Load().at(c.mono()) / time.Millisecond)
	for {
		shown := c.shown.Load()
		if now <= shown {
			return shown
		}
		if c.shown.CompareAndSwap(shown, now) {
			return now
		}
	}
}

// Local returns the machine's time at start plus what the monotonic clock has counted since, and what the machine slept
// through: what Follow compares with.
func (c *Clock) Local() time.Time {
	s := c.state.Load()
	return time.Unix(0, int64(c.mono()+s.offset-s.ahead))
}

// Follow tells the clock how far the store's is ahead of Local. It returns by how much that differs from what it followed
// so far.
func (c *Clock) Follow(ahead time.Duration) (step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.state.Load()
	step = ahead - old.ahead
	if step < deadBand && step > -deadBand {
		return step
	}
	m := c.mono()
	c.state.Store(&clockState{offset: old.offset + step, m0: m, t0: old.at(m), ahead: ahead})
	return step
}

// Measured returns a measurement that has just been taken: by how much the store's clock is ahead of Local.
func (c *Clock) Measured(ahead time.Duration) Measurement {
	local := c.Local()
	return Measurement{At: local.Sub(c.start), Ahead: ahead, Wall: c.wall().Sub(local)}
}

// Resume tells the clock that the machine was suspended, while its monotonic clock stood still.
func (c *Clock) Resume(slept time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.state.Load()
	m := c.mono()
	c.state.Store(&clockState{offset: old.offset + slept, m0: m, t0: old.at(m), ahead: old.ahead})
}

// Offset returns how far the store's clock is ahead of the machine's, and how far this clock is ahead of the store's because
// it does not go back.
func (c *Clock) Offset() (ahead, skew time.Duration) {
	s := c.state.Load()
	m := c.mono()
	return s.ahead, s.at(m) - (m + s.offset)
}
