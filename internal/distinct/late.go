package distinct

import (
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier/syncer"
)

const (
	// loadsAtOnce bounds the keys compared at the same time on behalf of waiting operations: more
	// would leave no connection for other exchanges.
	loadsAtOnce = 8
	// latePause is the pause after an exchange that was late.
	latePause = 25 * time.Millisecond
	// silentParts is the number of timeouts without any reply after which the store counts as down.
	// A store that refuses connections is down at once.
	silentParts = 2
)

// compareInTurn compares a key that operations wait for, once it is its turn. If the store has
// turned out to be down by then, the waiting operations check again.
func (e *Engine) compareInTurn(en *entry) {
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

// judgeReachable reports whether the store can be reached, according to exchanges that started at
// began. A store that answered none of them in time counts as late until its silence has lasted too
// long.
func (e *Engine) judgeReachable(list []*Exchange, began time.Time) (answered bool) {
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
