package syncer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"twotier.dev/twotier"
)

// room limits how many keys of a flusher wait for the store at a time, so that none waits longer
// than Options.MaxLag. The limit is the number that the store accepts in a fraction of that time,
// at the pace last measured. An operation that puts one more key on a dirty list needs room. One
// that adds to a key that is already on a list needs none.
//
// Room that was granted can't be revoked, so little is granted: known keys may fill a sixteenth of
// the lag and new keys half of that, so that a flood of new keys leaves room for known ones. The
// rest is for a store that suddenly becomes slower. If it becomes k times slower, the waiting keys
// take k/16 of the lag, and the keys that overtake them (see takeLargest) take another eighth. So
// nothing gets older than the lag while k is at most 14, of which README promises 10.
type room struct {
	lag     time.Duration // 0: there is always room
	timeout time.Duration // of an exchange
	// atOnce is how many keys an exchange may have, because one that takes too long gets no answer.
	// Only the batcher's goroutine uses it.
	atOnce int

	// owed counts the keys that wait for the store, except in partitions whose rounds fail.
	owed    atomic.Int64
	granted atomic.Int64 // to operations that waited for it and have not given it back
	most    [classes]atomic.Int64
	waiting [classes]atomic.Int64
	perTurn atomic.Int64 // keys that the store accepts in turnTime
	refused atomic.Int64 // operations refused for want of room
	closed  atomic.Bool

	mu    sync.Mutex
	pace  pace
	lines [classes][]*waiter // operations that wait for room, first come first served
}

// The classes of keys that need room.
const (
	knownKey = iota
	newKey
	classes
)

// classParts is the fraction of the lag (a sixteenth, a thirty-second) that may be filled when a
// key of each class is admitted.
var classParts = [classes]time.Duration{knownKey: 16, newKey: 32}

const (
	// timeoutParts and lagParts are the fractions of its timeout, and of the lag, that an exchange
	// may take at the pace of earlier ones.
	lagParts     = 8
	timeoutParts = 2
	// leastAtOnce is how many keys an exchange may have in any case, firstAtOnce how many the first
	// one may have.
	leastAtOnce = 64
	firstAtOnce = 256
)

// init sets the lag, and assumes a slow store until its pace has been measured.
func (m *room) init(lag, timeout time.Duration) {
	m.lag, m.timeout = lag, timeout
	m.pace = newPace(firstAtOnce * timeoutParts / timeout.Seconds())
	m.resize()
}

// resize sets the bounds according to the pace.
func (m *room) resize() {
	for class, part := range classParts {
		m.most[class].Store(m.pace.within(m.lag / part))
	}
	m.perTurn.Store(m.pace.within(turnTime))
	long := m.timeout / timeoutParts
	if m.lag > 0 {
		long = min(long, m.lag/lagParts)
	}
	m.atOnce = int(min(maxKeysAtOnce, max(leastAtOnce, m.pace.within(long))))
}

// open reports whether there is room for a key of a class and no earlier operation waits for it.
func (m *room) open(class int) bool {
	if m.lag == 0 {
		return true
	}
	for c := range class + 1 {
		if m.waiting[c].Load() > 0 {
			return false
		}
	}
	return m.fits(class)
}

func (m *room) fits(class int) bool {
	return m.owed.Load()+m.granted.Load() < m.most[class].Load()
}

// share returns how many keys the next round of a partition may have, given how many keys it owes
// and an upper bound: its part of the keys that the store accepts in turnTime.
func (m *room) share(owed int64, most int) int {
	most = min(most, m.atOnce)
	all, turn := m.owed.Load(), m.perTurn.Load()
	if all <= turn {
		return most
	}
	return min(most, max(leastShare, int(owed*turn/all)))
}

// admission lets an operation, or a batch of them, wait for room. All waits together leave enough
// of the operation's time to report a refusal to its caller, see patience.
type admission struct {
	ctx     context.Context
	opt     *Options
	by      time.Time
	never   bool     // don't wait for now
	granted *batcher // has granted room for one key
	flusher *batcher // where there was no room
	class   int      // for a key of this class
}

// admits reports whether one more key may wait for the store. If not, the admission records where
// there is no room. While the store can't be reached, only memory bounds the counts. The partition
// is locked.
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

// admitsAll returns why a call may not count, or nil if there is room for all of its keys. A ban
// needs room only if it starts, see breached.
func (k *call) admitsAll() error {
	for i := range k.targets {
		switch t := &k.targets[i]; {
		case t.check.N == 0:
		case t.p.draining:
			return twotier.ErrClosed
		case !k.admission.admits(t):
			return twotier.ErrBehind
		}
	}
	return nil
}

// explain adds an estimate of when there will be room to the refusal of an operation that waited
// for it. Other errors stay unchanged.
func (w *admission) explain(err error) error {
	if w.never || !errors.Is(err, twotier.ErrBehind) {
		return err
	}
	return &twotier.RetryError{Err: err, After: w.flusher.room.expected(w.class)}
}

// end gives back the granted room: either it was not used, or the counted key now takes it.
func (w *admission) end() {
	if w.granted != nil {
		w.granted.giveBack()
		w.granted = nil
	}
}
