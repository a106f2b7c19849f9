package elapsed

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Clock measures elapsed time. The zero value is ready to use and starts when it is first read.
type Clock struct {
	mu     sync.Mutex
	last   time.Time
	passed time.Duration
}

// Now returns the time that has passed since the first reading.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.last.IsZero() {
		c.passed += Between(c.last, now)
	}
	c.last = now
	return c.passed
}

// Between returns the time between two readings of [time.Now], by the monotonic or the wall clock,
// whichever advanced further. It is at least 0.
func Between(earlier, later time.Time) time.Duration {
	return max(0, later.Sub(earlier), later.Round(0).Sub(earlier.Round(0)))
}

const (
	// BeatInterval is the time between the beats of a [Pulse].
	BeatInterval = 100 * time.Millisecond
	// LongestGap is the time between two beats beyond which the process stood still. Scheduling
	// delays and pauses of the garbage collector are shorter. Other nodes decide in place of a node
	// that leaves three pings in a row unanswered, for 250 ms each. After a shorter standstill than
	// LongestGap, its answer still arrives in time.
	LongestGap = 600 * time.Millisecond
)

// Pulse detects that the process stood still: it was stopped, its host was suspended, or it got no
// processor. One goroutine calls Beat every [BeatInterval]; a longer gap than [LongestGap] is a
// standstill. The first instruction after a standstill may be anywhere in the program, so a
// decision does not rely on Beat having noticed it: it calls Covers before it commits, and
// HasRunSince before it answers.
//
// All other methods are safe for concurrent use.
type Pulse struct {
	now     func() time.Time
	counter func() int64
	last    atomic.Pointer[time.Time] // of the last beat; nil before the first
	covered atomic.Int64              // by the counter's clock, until when the last beat counts
	stops   atomic.Uint64
}

// NewPulse returns a pulse that has not begun to beat. now returns the wall clock and the monotonic
// clock; nil means time.Now. counter returns the time that is passed to Covers, in unix
// milliseconds.
func NewPulse(now func() time.Time, counter func() int64) *Pulse {
	if now == nil {
		now = time.Now
	}
	p := &Pulse{now: now, counter: counter}
	p.covered.Store(math.MinInt64)
	return p
}

// Beat records that the process is running. If it stood still since the last beat, Beat calls
// forget first: until forget has returned, Covers stays false.
func (p *Pulse) Beat(forget func()) {
	now := p.now()
	until := p.counter() + LongestGap.Milliseconds()
	if last := p.last.Load(); last != nil && Between(*last, now) > LongestGap {
		p.covered.Store(math.MinInt64)
		p.stops.Add(1)
		forget()
	}
	p.last.Store(&now)
	p.covered.Store(until)
}

// Covers reports whether the process has not stood still up to a time by the counter's clock, as
// far as that clock shows it: it may stop while the machine is suspended.
func (p *Pulse) Covers(now int64) bool { return now <= p.covered.Load() }

// Stops returns how often the process stood still, for HasRunSince.
func (p *Pulse) Stops() uint64 { return p.stops.Load() }

// HasRunSince reports whether the process has not stood still since Stops returned this number. It
// reads the clocks, and so notices a standstill before the next beat does.
func (p *Pulse) HasRunSince(stops uint64) bool {
	last := p.last.Load()
	return last != nil && Between(*last, p.now()) <= LongestGap && p.stops.Load() == stops
}
