package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// timekeeper has the clock follow that of the store, as far as it can be believed.
type timekeeper struct {
	clock  *Clock
	store  Store
	every  time.Duration
	asleep func() time.Duration
	log    *slog.Logger
	why    atomic.Pointer[Doubt]

	mu     sync.Mutex
	belief Belief
	slept  time.Duration // what the clock has been told of
}

func (k *timekeeper) init(opt *Options) {
	k.clock, k.store, k.every, k.log = opt.Clock, opt.Store, opt.ClockInterval, opt.Logger
	if k.asleep = opt.Asleep; k.asleep == nil {
		k.asleep = func() time.Duration { return 0 }
	}
	k.slept = k.asleep()
	k.why.Store(new(Doubt))
}

// doubt says why the time can't be believed at this moment, "" if it can.
func (k *timekeeper) doubt() Doubt { return *k.why.Load() }

// mark marks an answer for which time was told here.
func (k *timekeeper) mark(res *Result) {
	if k.doubt() != "" {
		res.Degraded = true
	}
}

// markAll is mark for all answers of a batch.
func (k *timekeeper) markAll(res []Result) {
	for i := range res {
		k.mark(&res[i])
	}
}

const (
	// clockWatch is how often it is looked whether the machine was suspended, and how often the
	// store is asked while there is a doubt.
	clockWatch = time.Second
	// clockTimeout bounds one measurement.
	clockTimeout = time.Second
	// napNoise is how long a suspension is at least: the two clocks that tell are not read at the same instant.
	napNoise = 100 * time.Millisecond
)

// run measures again and again.
func (k *timekeeper) run(ctx context.Context) {
	asked := time.Now()
	for pause(ctx, min(k.every, clockWatch)) {
		if k.resume() || k.doubt() != "" || time.Since(asked) >= k.every {
			k.measure(ctx)
			asked = time.Now()
		}
	}
}

// resume tells the clock if the machine was suspended.
func (k *timekeeper) resume() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	nap := k.asleep() - k.slept
	if nap < napNoise {
		return false
	}
	k.slept += nap
	k.clock.Resume(nap)
	k.log.Info("the machine was suspended", "time", nap)
	return true
}

// measure asks the store for its time.
func (k *timekeeper) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	k.resume() // or what it slept through would be taken for a step
	ahead, err := k.store.Clock(ctx, k.clock.Local)
	if err != nil {
		return // the store's health says so
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.belief.met
	step := k.clock.Follow(k.belief.Take(k.clock.Measured(ahead)))
	if !first && apart(step, 0) > smallStep {
		k.log.Warn("the store's clock has stepped, and is followed", "step", step)
	}
	k.judge()
}

// judge notes what is to be doubted now, and logs it when that changes.
func (k *timekeeper) judge() {
	why, off := k.belief.Doubt()
	if _, skew := k.clock.Offset(); why == "" && skew > smallStep {
		why, off = DoubtSlow, -skew
	}
	before := k.doubt()
	if why == before {
		return
	}
	k.why.Store(&why)
	if why == "" {
		k.log.Info("the time is believed again")
		return
	}
	k.log.Warn("the time is in doubt: answers are degraded", "why", why.String(), "store_ahead", off)
}
