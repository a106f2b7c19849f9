package syncer

import (
	"context"
	"errors"
	"time"
)

// admission lets an operation, or a batch of them, wait for room. All waits together take at most
// most of the time that the operation has, so that its caller still hears of a refusal.
type admission struct {
	ctx     context.Context
	opt     *Options
	by      time.Time
	never   bool     // don't wait for now
	granted *batcher // has granted room for one key
	flusher *batcher // where there was no room
	class   int      // for a key of this class
}

// patience is the fraction of its time that an operation may spend waiting for room.
const patience = 0.75

// wait waits for room where admits found none. It reports whether to try again.
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

// left returns how much longer the operation may wait.
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

// await waits in line for at most left. It reports whether the operation should try again, because
// it was granted room or told to look again.
func (w *admission) await(n *waiter, left time.Duration) bool {
	m := &w.flusher.room
	timer := time.NewTimer(left)
	defer timer.Stop()
	if m.closed.Load() {
		m.retryAll() // the room may have been closed before this operation joined the line
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

// giveBack takes back the room that an operation was granted. If the operation has not used it, the
// next in line may. Once no granted room is outstanding, a flush begins for the sake of those who
// still wait.
func (l *batcher) giveBack() {
	left := l.room.granted.Add(-1)
	if l.room.anyWaiting() {
		l.room.note(0, 0)
	}
	if left == 0 && l.room.anyWaiting() {
		l.flushSoon()
	}
}

// explain adds to the refusal of an operation that waited for room an estimate of when there will
// be some. Other errors stay as they are.
func (w *admission) explain(err error) error {
	if w.never || !errors.Is(err, ErrBehind) {
		return err
	}
	return &RetryError{Err: err, After: w.flusher.room.expected(w.class)}
}

// end gives back the granted room: either it was not used, or the key that was counted now takes
// it.
func (w *admission) end() {
	if w.granted != nil {
		w.granted.giveBack()
		w.granted = nil
	}
}

// admits reports whether one more key may wait for the store. If not, the admission records where
// there is no room. While the store can't be reached, memory alone bounds what is counted. The
// partition is locked.
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

// admitsAll returns why a call may not count, or nil if there is room for all of its keys.
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
