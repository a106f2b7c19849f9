package room

import (
	"sync"
	"sync/atomic"
	"time"
)

// Room limits how many keys wait for a store at a time. See the package comment for the bound.
type Room struct {
	lag     time.Duration
	timeout time.Duration // of an exchange
	flush   func()

	owed    atomic.Int64 // the backlog: keys that wait for the store
	granted atomic.Int64 // to operations that have not released it yet
	most    [classes]atomic.Int64
	waiting [classes]atomic.Int64
	perTurn atomic.Int64 // keys that the store accepts in turnTime
	atOnce  atomic.Int64 // see MaxExchangeKeys
	refused atomic.Int64
	closed  atomic.Bool

	mu    sync.Mutex
	pace  pace
	lines [classes][]*waiter // operations that wait for room, first come first served
}

// Class is a class of keys that need room.
type Class int

// The classes of keys, the first to get free room first.
const (
	// KnownKey is a key that is already in memory.
	KnownKey Class = iota
	// NewKey is a key that is not. New keys leave half of the room to known ones.
	NewKey
	classes
)

// classParts is the fraction of the lag (a sixteenth, a thirty-second) that may be filled when a
// key of each class is admitted.
var classParts = [classes]time.Duration{KnownKey: 16, NewKey: 32}

const (
	// MaxAtOnce bounds the keys of an exchange at any pace.
	MaxAtOnce = 2048
	// lagParts and timeoutParts are the fractions of the lag, and of its timeout, that an exchange
	// may take at the pace of earlier ones.
	lagParts     = 8
	timeoutParts = 2
	// leastAtOnce is how many keys an exchange may have in any case, firstAtOnce how many the first
	// one may have.
	leastAtOnce = 64
	firstAtOnce = 256
	// turnTime is the time within which every part of the backlog gets its turn, see RoundKeys.
	turnTime = time.Second
	// leastShare is how many keys a round may have in any case. With fewer, the overhead of the
	// round would cost the store more than the keys.
	leastShare = 16
)

// New returns a Room for a store whose keys may wait for at most lag, and whose exchanges fail
// after timeout. A lag of 0 means that there is always room. The store is assumed to be slow until
// its pace has been measured.
//
// The room calls flush when operations wait, and an exchange should begin early to make room for
// them. flush must not block. It is called without locks, by callers of Wait and Release.
func New(lag, timeout time.Duration, flush func()) *Room {
	m := &Room{lag: lag, timeout: timeout, flush: flush}
	m.pace = newPace(firstAtOnce * timeoutParts / timeout.Seconds())
	m.resizeLocked()
	return m
}

// resizeLocked sets the bounds according to the pace.
func (m *Room) resizeLocked() {
	for c, part := range classParts {
		m.most[c].Store(m.pace.keysWithin(m.lag / part))
	}
	m.perTurn.Store(m.pace.keysWithin(turnTime))
	long := m.timeout / timeoutParts
	if m.lag > 0 {
		long = min(long, m.lag/lagParts)
	}
	m.atOnce.Store(min(MaxAtOnce, max(leastAtOnce, m.pace.keysWithin(long))))
}

// Lag returns the longest time that a key may wait for the store. 0 means that it is unlimited.
func (m *Room) Lag() time.Duration { return m.lag }

// HasRoom reports whether there is room for one more key of a class, and no earlier operation waits
// for it. It reserves nothing: two callers may both use the last room.
func (m *Room) HasRoom(c Class) bool {
	if m.lag == 0 {
		return true
	}
	for before := range c + 1 {
		if m.waiting[before].Load() > 0 {
			return false
		}
	}
	return m.fits(c)
}

// fits reports whether there is room for one more key of a class, ignoring the lines.
func (m *Room) fits(c Class) bool {
	return m.owed.Load()+m.granted.Load() < m.most[c].Load()
}

// IsFilling reports whether the backlog leaves no room for new keys.
func (m *Room) IsFilling() bool { return m.lag > 0 && !m.fits(NewKey) }

// AddOwed changes the backlog by n keys, which may be negative. Keys that the store does not accept
// at present should not be part of it: they would take room from others. Room that becomes free is
// granted by the next call of Record, Grant or Release.
func (m *Room) AddOwed(n int64) { m.owed.Add(n) }

// MaxExchangeKeys returns how many keys an exchange may have: an exchange with more takes too long
// at the present pace, and one that exceeds its timeout gets no answer. It is between 64 and
// MaxAtOnce.
func (m *Room) MaxExchangeKeys() int { return int(m.atOnce.Load()) }

// RoundKeys returns how many keys the next round of a part of the backlog may have, given how many
// keys that part owes and an upper bound. If the store accepts the whole backlog within a second,
// the round may have as many as MaxExchangeKeys allows. Otherwise each part gets its proportion of
// the keys that the store accepts in a second, but at least 16.
func (m *Room) RoundKeys(owed int64, most int) int {
	most = min(most, m.MaxExchangeKeys())
	all, turn := m.owed.Load(), m.perTurn.Load()
	if all <= turn {
		return most
	}
	return min(most, max(leastShare, int(owed*turn/all)))
}

// Record records an exchange in which the store accepted a number of keys, adapts the bounds to the
// store's pace, and grants the free room to operations in line. An exchange without accepted keys
// does not change the pace.
func (m *Room) Record(keys int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if keys > 0 {
		m.pace.record(keys, took)
		m.resizeLocked()
	}
	m.grantLocked()
}

// maxExpected bounds the result of ExpectedWait. Beyond that, the pace of the store is anyone's
// guess.
const maxExpected = time.Minute

// ExpectedWait estimates how long it takes until there is room for one more key of a class, behind
// all operations in line, if the store keeps its pace. It is at most a minute.
func (m *Room) ExpectedWait(c Class) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	ahead := m.owed.Load() + m.granted.Load() + 1 - m.most[c].Load()
	for before := range c + 1 {
		ahead += m.waiting[before].Load()
	}
	return min(maxExpected, m.pace.timeFor(max(1, ahead)))
}

// Waiting returns how many operations wait for room.
func (m *Room) Waiting() int64 { return m.waiting[KnownKey].Load() + m.waiting[NewKey].Load() }

// Stats are the figures of a [Room].
type Stats struct {
	Owed    int64          // keys of the backlog
	Most    [classes]int64 // for each Class, the backlog at which there is no more room for a key
	Granted int64          // operations that were granted room and have not released it
	Waiting int64          // operations that wait for room
	Refused int64          // operations that were refused, since New
}

// Stats returns the present figures. They are not from one moment if the room is in use.
func (m *Room) Stats() Stats {
	s := Stats{Owed: m.owed.Load(), Granted: m.granted.Load(), Waiting: m.Waiting(),
		Refused: m.refused.Load()}
	for c := range s.Most {
		s.Most[c] = m.most[c].Load()
	}
	return s
}
