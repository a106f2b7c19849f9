package distinct

import (
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier/syncer"
)

const (
	// loadsAtOnce bounds the keys that are compared at the same time because operations wait for
	// them: more would leave no connection to what else there is to tell the store.
	loadsAtOnce = 8
	// latePause is how long a key that was late is left alone.
	latePause = 25 * time.Millisecond
	// silentParts is for how many timeouts nothing must have come from the store until it is down,
	// if it does not refuse connections.
	silentParts = 2
)

// load compares a key that operations wait for, once it is its turn. If that shows that the store
// is down, those who wait look again.
func (e *Engine) load(en *entry) {
	select {
	case e.loads <- struct{}{}:
	default:
		select {
		case e.loads <- struct{}{}:
		case <-e.run.Done():
			e.release([]*entry{en})
			return
		}
		if e.isDown() {
			<-e.loads
			e.release([]*entry{en})
			return
		}
	}
	defer func() { <-e.loads }()
	e.exchange([]*entry{en})
}

// judge reports whether the store can be reached, according to exchanges that began at a time. If
// it answered none in time, it is late until its silence has lasted too long.
func (e *Engine) judge(list []*Exchange, began time.Time) (answered bool) {
	late := false
	for _, x := range list {
		late = late || errors.Is(x.Err, syncer.ErrLate)
		answered = answered || x.Err == nil || errors.Is(x.Err, syncer.ErrRefused)
	}
	if answered || late {
		e.silent.Store(0)
	} else if now := time.Now(); now.Sub(began) >= e.opt.Timeout {
		e.silent.CompareAndSwap(0, began.UnixNano())
		since := time.Unix(0, e.silent.Load())
		if late = now.Sub(since) < silentParts*e.opt.Timeout; late {
			for _, x := range list {
				x.Err = fmt.Errorf("%w: %w", syncer.ErrLate, x.Err)
			}
		}
	}
	if late && !answered {
		select {
		case <-time.After(latePause):
		case <-e.run.Done():
		}
	}
	return answered || late
}
