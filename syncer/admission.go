package syncer

import (
	"context"
	"errors"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/room"
)

// admission lets an operation, or a batch of them, wait for room. All waits together leave enough
// of the operation's time to report a refusal to its caller, see patience.
type admission struct {
	ctx     context.Context
	opt     *Options
	by      time.Time
	never   bool       // don't wait for now
	granted *room.Room // has granted room for one key
	full    *room.Room // where there was no room
	class   room.Class // for a key of this class
}

// hasRoom reports whether one more key may wait for the store. If not, the admission records where
// there is no room. While the store can't be reached, only memory bounds the counts. The partition
// is locked.
func (w *admission) hasRoom(t *target) bool {
	m := t.p.owed.room
	if w.granted == m || m.HasRoom(room.NewKey) || t.p.outbox.Retry.Failing() ||
		t.p.health.down.Load() {
		return true
	}
	class := room.NewKey
	if r := t.p.keys.Find(t.hash, t.ns, t.check.Key); r != 0 {
		if t.p.keys.EntryAt(r).HasFlag(keys.FlagDirty | keys.FlagParked) {
			return true
		}
		if class = room.KnownKey; m.HasRoom(class) {
			return true
		}
	}
	w.full, w.class = m, class
	return false
}

// checkRoom returns why a call may not count, or nil if there is room for all of its keys. A ban
// needs room only if it starts, see bansToStart.
func (k *call) checkRoom() error {
	for i := range k.targets {
		switch t := &k.targets[i]; {
		case t.check.N == 0:
		case t.p.phase >= draining:
			return twotier.ErrClosed
		case !k.admission.hasRoom(t):
			return twotier.ErrBehind
		}
	}
	return nil
}

// waitForRoom waits for room after hasRoom found none. It reports whether to try again.
func (w *admission) waitForRoom() bool {
	if w.releaseRoom(); w.never {
		return false
	}
	out := w.full.Wait(w.ctx, w.class, w.remaining())
	if out == room.Granted {
		w.granted = w.full
	}
	return out != room.Refused
}

// patience is the fraction of an operation's time that it may spend waiting for room.
const patience = 0.75

// remaining returns how much longer the operation may wait.
func (w *admission) remaining() time.Duration {
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

// explainRefusal adds an estimate of when there will be room to the refusal of an operation that
// waited for it. Other errors stay unchanged.
func (w *admission) explainRefusal(err error) error {
	if w.never || !errors.Is(err, twotier.ErrBehind) {
		return err
	}
	return &twotier.RetryError{Err: err, After: w.full.ExpectedWait(w.class)}
}

// releaseRoom gives back the granted room: either it was not used, or the counted key now takes it.
func (w *admission) releaseRoom() {
	if w.granted != nil {
		w.granted.Release()
		w.granted = nil
	}
}
