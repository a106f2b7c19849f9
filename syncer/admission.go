package syncer

import (
	"context"
	"errors"
	"time"
)

// admission is how an operation, or a batch of them, waits for room: in all no longer than most of
// the time that it has, so that who asks hears of a refusal.
type admission struct {
	ctx     context.Context
	opt     *Options
	by      time.Time
	never   bool     // it does not wait now
	granted *batcher // has room for one more key
	flusher *batcher // where the operation found none,
	class   int      // for such a key
}

// patience is which part of its time an operation waits for room.
const patience = 0.75

// wait waits for room where there was none. It reports whether to try again.
func (w *admission) wait() bool {
	if w.end(); w.never {
		return false
	}
	left := w.left()
	if left <= 0 || w.ctx.Err() != nil {
		w.flusher.room.refused.Add(1)
		return false
	}
	n := w.flusher.room.join(w.class)
	w.flusher.flushSoon()
	if w.await(n, left) {
		return true
	}
	w.flusher.room.refused.Add(1)
	return false
}

// left is how long the operation may wait still.
func (w *admission) left() time.Duration {
	now := time.Now()
	if w.by.IsZero() {
		bound := w.opt.LoadTimeout
		if deadline, ok := w.ctx.Deadline(); ok {
			bound = deadline.Sub(now)
		}
		w.by = now.Add(time.Duration(patience * float64(bound)))
	}
	return w.by.Sub(now)
}

// await waits in line for some time, and reports whether something has changed in it.
func (w *admission) await(n *waiter, left time.Duration) bool {
	m := &w.flusher.room
	timer := time.NewTimer(left)
	defer timer.Stop()
	if m.closed.Load() {
		m.retryAll() // whoever closed it may have done so before this one was in line
	}
	granted, told := false, true
	select {
	case granted = <-n.told:
	case <-timer.C:
		granted, told = m.leave(w.class, n), false
	case <-w.ctx.Done():
		granted, told = m.leave(w.class, n), false
	}
	if granted && told {
		w.granted = w.flusher
	} else if granted {
		w.flusher.giveBack()
	}
	return told
}

// giveBack takes back what was granted to an operation. If that has not used it, whoever is next in
// line may. Once all that was granted is used, the store is to take it for the sake of those who
// wait.
func (l *batcher) giveBack() {
	left := l.room.granted.Add(-1)
	if l.room.anyWaiting() {
		l.room.note(0, 0)
	}
	if left == 0 && l.room.anyWaiting() {
		l.flushSoon()
	}
}

// explain adds to the refusal of an operation that waited for room how long it may take until there
// is some. Other errors stay as they are.
func (w *admission) explain(err error) error {
	if w.never || !errors.Is(err, ErrBehind) {
		return err
	}
	return &RetryError{Err: err, After: w.flusher.room.expected(w.class)}
}

// end gives back room that was not used, or that what was counted now takes itself.
func (w *admission) end() {
	if w.granted != nil {
		w.granted.giveBack()
		w.granted = nil
	}
}

// admits reports whether the store may be given one more key to take. If not, the admission says
// where there is no room. What the store can't be told is bounded by memory alone. The partition is
// locked.
func (w *admission) admits(t *target) bool {
	m := &t.p.flusher.room
	if w.granted == t.p.flusher || m.open(newKey) || t.p.outbox.retry.failing() ||
		t.p.health.down.Load() {
		return true
	}
	class := newKey
	if r := t.p.keys.find(t.hash, t.ns, t.check.Key); r != 0 {
		if t.p.keys.entry(r).has(flagDirty | flagParked) {
			return true
		}
		if class = knownKey; m.open(class) {
			return true
		}
	}
	w.flusher, w.class = t.p.flusher, class
	return false
}

// admitsAll returns why a call may not count, nil if all of its keys have room.
func (k *call) admitsAll() error {
	for i := range k.targets {
		switch t := &k.targets[i]; {
		case t.p.draining:
			return ErrClosed
		case !k.admission.admits(t):
			return ErrBehind
		}
	}
	return nil
}
