package storeclock

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/retry"
)

// Clock is the time at which events are counted: the store's time, which all nodes that share a
// store have in common. It is driven by the machine's monotonic clock and corrected by Follow, so a
// step of the wall clock alone changes nothing.
//
// Except for Set, it never goes back. If it is behind, it steps forward; if it is ahead, it runs at
// half speed until the store's clock has caught up.
type Clock struct {
	start time.Time
	wall  func() time.Time
	mono  func() time.Duration
	state atomic.Pointer[state]
	doubt atomic.Pointer[Doubt]
	mu    sync.Mutex // held by Follow
}

// state: at monotonic time m the clock shows the later of m + offset and t0 + half of the time
// since m0.
type state struct {
	offset time.Duration // from monotonic time to unix time
	m0, t0 time.Duration
	ahead  time.Duration
	shown  *atomic.Int64 // the latest answer of Now since the clock was set
}

// deadBand is the size below which a correction counts as measurement noise.
const deadBand = time.Millisecond

// New returns a clock that shows the machine's time until it is corrected. wall is read once, and
// for each measurement of the store's clock; mono is read each time. Nil means the machine's
// clocks.
func New(wall func() time.Time, mono func() time.Duration) *Clock {
	if wall == nil {
		wall = time.Now
	}
	if mono == nil {
		began := time.Now()
		mono = func() time.Duration { return time.Since(began) }
	}
	c := &Clock{start: wall(), wall: wall, mono: mono}
	c.doubt.Store(new(Doubt))
	offset := time.Duration(c.start.UnixNano()) - mono()
	c.state.Store(&state{offset: offset, t0: offset + mono(), m0: mono(), shown: new(atomic.Int64)})
	return c
}

func (s *state) at(m time.Duration) time.Duration {
	return max(m+s.offset, s.t0+(m-s.m0)/2)
}

// Now returns the time in unix milliseconds. A reader may be preempted between loading the state
// and reading the monotonic clock while Follow slows the clock down, and would then be ahead of the
// next reader. So no result is earlier than one returned before. shown is written at most a
// thousand times a second, so its cache line stays shared.
func (c *Clock) Now() int64 {
	s := c.state.Load()
	now := int64(s.at(c.mono()) / time.Millisecond)
	for {
		shown := s.shown.Load()
		if now <= shown {
			return shown
		}
		if s.shown.CompareAndSwap(shown, now) {
			return now
		}
	}
}

// Doubt returns the reason why the time can't be trusted right now, "" if it can. A [Keeper]
// decides that. Doubt takes no lock, because every answer depends on it.
func (c *Clock) Doubt() Doubt { return *c.doubt.Load() }

// Local returns the machine's time at the start, plus the time that the monotonic clock has counted
// since and that the machine was suspended. Follow's argument is relative to it.
func (c *Clock) Local() time.Time {
	s := c.state.Load()
	return time.Unix(0, int64(c.mono()+s.offset-s.ahead))
}

// Follow corrects the clock: ahead is how far the store's clock is ahead of Local. It returns the
// difference to the value followed before.
func (c *Clock) Follow(ahead time.Duration) (step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.state.Load()
	step = ahead - old.ahead
	if step < deadBand && step > -deadBand {
		return step
	}
	m := c.mono()
	c.state.Store(&state{offset: old.offset + step, m0: m, t0: old.at(m), ahead: ahead,
		shown: old.shown})
	return step
}

// Set makes the clock show the store's time at once, even if that is earlier, because the time
// shown so far was wrong. ahead and step are as in Follow.
func (c *Clock) Set(ahead time.Duration) (step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.state.Load()
	step = ahead - old.ahead
	m, offset := c.mono(), old.offset+step
	c.state.Store(&state{offset: offset, m0: m, t0: m + offset, ahead: ahead,
		shown: new(atomic.Int64)})
	return step
}

// NewMeasurement returns the measurement for a reading just taken: the store's clock is this far
// ahead of Local.
func (c *Clock) NewMeasurement(ahead time.Duration) Measurement {
	local := c.Local()
	return Measurement{At: local.Sub(c.start), Ahead: ahead, Wall: c.wall().Sub(local)}
}

// Resume advances the clock by the time that the machine was suspended, during which its monotonic
// clock stood still.
func (c *Clock) Resume(slept time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.state.Load()
	m := c.mono()
	c.state.Store(&state{offset: old.offset + slept, m0: m, t0: old.at(m), ahead: old.ahead,
		shown: old.shown})
}

// Offset returns how far the store's clock is ahead of the machine's, and how far this clock is
// ahead of the store's because it does not go back.
func (c *Clock) Offset() (ahead, skew time.Duration) {
	s := c.state.Load()
	m := c.mono()
	return s.ahead, s.at(m) - (m + s.offset)
}

// Source is a clock that can be asked for its time: the store's.
type Source interface {
	// ClockAhead returns how far the source is ahead of a local clock.
	ClockAhead(ctx context.Context, local func() time.Time) (ahead time.Duration, err error)
}

// Options configure a [Keeper].
type Options struct {
	// Clock follows Source. Required.
	Clock  *Clock
	Source Source
	// Interval is how often to ask the source while its time is not in doubt. Default: 10 s.
	Interval time.Duration
	// Asleep returns the total time for which the machine has been suspended, see elapsed.Asleep.
	// Nil if that is unknown: then a suspension looks like a step of the source's clock.
	Asleep func() time.Duration
	// Changed is called after each change of the clock's doubt. Default: none.
	Changed func()
	// Logger receives a message when the clock becomes doubtful and when it no longer is. Default:
	// none.
	Logger *slog.Logger
}

// Keeper makes a Clock follow a Source while its readings are believable. Its methods are safe for
// concurrent use.
type Keeper struct {
	opt Options

	mu     sync.Mutex
	belief Belief
	slept  time.Duration // the time by which the clock was resumed
}

// NewKeeper returns a keeper that has not asked its source yet.
func NewKeeper(opt Options) *Keeper {
	opt.Interval = cmp.Or(opt.Interval, 10*time.Second)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if opt.Asleep == nil {
		opt.Asleep = func() time.Duration { return 0 }
	}
	if opt.Changed == nil {
		opt.Changed = func() {}
	}
	return &Keeper{opt: opt, slept: opt.Asleep()}
}

const (
	// watchInterval is how often to check whether the machine was suspended, and how often to ask
	// the source while its time is in doubt.
	watchInterval = time.Second
	// measureTimeout bounds one measurement.
	measureTimeout = time.Second
	// leastSleep is the shortest suspension that is distinguished from noise: the two clocks that
	// reveal it are not read at the same instant.
	leastSleep = 100 * time.Millisecond
)

// Run measures periodically until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	for asked := time.Now(); retry.Pause(ctx, min(k.opt.Interval, watchInterval)); {
		if k.resume() || k.opt.Clock.Doubt() != "" || time.Since(asked) >= k.opt.Interval {
			k.Measure(ctx)
			asked = time.Now()
		}
	}
}

// resume corrects the clock if the machine was suspended, and reports whether it was.
func (k *Keeper) resume() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	slept := k.opt.Asleep() - k.slept
	if slept < leastSleep {
		return false
	}
	k.slept += slept
	k.opt.Clock.Resume(slept)
	k.opt.Logger.Info("the machine was suspended", "time", slept)
	return true
}

// Measure asks the source for its time once. If it does not answer within a second, or before ctx
// is done, the clock continues unchanged; until the first answer it is in doubt.
func (k *Keeper) Measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	k.resume() // otherwise the suspension would look like a step
	ahead, err := k.opt.Source.ClockAhead(ctx, k.opt.Clock.Local)
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.judgeLocked()
	if err != nil {
		return // the store's health reports it
	}
	first := !k.belief.started
	follow, anew := k.belief.Accept(k.opt.Clock.NewMeasurement(ahead))
	switch {
	case anew:
		step := k.opt.Clock.Set(follow)
		k.opt.Logger.Warn("the store's clock was wrong when this node started: setting the time",
			"step", step)
	case first && absDiff(follow, 0) <= smallStep:
		// A node that has just started decides nothing by a clock that has yet to fall back.
		k.opt.Clock.Set(follow)
	default:
		if step := k.opt.Clock.Follow(follow); !first && absDiff(step, 0) > smallStep {
			k.opt.Logger.Warn("following a step of the store's clock", "step", step)
		}
	}
}

// judgeLocked updates the doubt, and logs it when it changes.
func (k *Keeper) judgeLocked() {
	why, off := k.belief.Doubt()
	if _, skew := k.opt.Clock.Offset(); why == "" && skew > smallStep {
		why, off = DoubtSlow, -skew
	}
	if why == k.opt.Clock.Doubt() {
		return
	}
	k.opt.Clock.doubt.Store(&why)
	k.opt.Changed()
	if why == "" {
		k.opt.Logger.Info("the time is trusted again")
		return
	}
	k.opt.Logger.Warn("the time is in doubt: answers are degraded", "why", why.String(),
		"store_ahead", off)
}
