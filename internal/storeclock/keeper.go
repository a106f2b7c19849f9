package storeclock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"twotier.dev/twotier/internal/retry"
)

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
	if opt.Interval == 0 {
		opt.Interval = 10 * time.Second
	}
	if opt.Asleep == nil {
		opt.Asleep = func() time.Duration { return 0 }
	}
	if opt.Changed == nil {
		opt.Changed = func() {}
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
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
