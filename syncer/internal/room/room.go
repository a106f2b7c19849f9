package room

import (
	"context"
	"math"
	"slices"
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
	m.pace = pace{guessWeight * (firstAtOnce * timeoutParts / timeout.Seconds()), guessWeight}
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

// Outcome is the end of a wait for room.
type Outcome int

const (
	// Refused means that there was no room in time.
	Refused Outcome = iota
	// Retry means that the caller should check again, because it may no longer need room. It no
	// longer stands in line.
	Retry
	// Granted means that the caller may add one key to the backlog. It must call Release after it
	// has done so, or if it doesn't.
	Granted
)

// waiter is an operation in line. Its reply is Granted or Retry.
type waiter struct {
	class Class
	reply chan Outcome
}

// Wait waits in line for room for a key of a class, until ctx is done but for no longer than most.
// It returns Refused at once if there is no time to wait.
func (m *Room) Wait(ctx context.Context, c Class, most time.Duration) Outcome {
	if most > 0 && ctx.Err() == nil {
		w := m.join(c)
		m.flush()
		if out := m.await(ctx, w, most); out != Refused {
			return out
		}
	}
	m.refused.Add(1)
	return Refused
}

// await waits until an operation in line has a reply or its time is up.
func (m *Room) await(ctx context.Context, w *waiter, most time.Duration) Outcome {
	timer := time.NewTimer(most)
	defer timer.Stop()
	if m.closed.Load() {
		m.RetryAll() // the room may have been closed before this operation joined the line
	}
	select {
	case out := <-w.reply:
		return out
	case <-timer.C:
	case <-ctx.Done():
	}
	if m.leave(w) == Granted {
		m.Release()
	}
	return Refused
}

// Release takes back the room that Wait granted. If the operation has not used it, the next in line
// may. Once no granted room is outstanding, a flush begins for the operations that still wait.
func (m *Room) Release() {
	left := m.granted.Add(-1)
	if m.Waiting() > 0 {
		m.Grant()
	}
	if left == 0 && m.Waiting() > 0 {
		m.flush()
	}
}

// Grant grants the free room to operations in line. Callers need it when the backlog shrinks
// without an exchange.
func (m *Room) Grant() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grantLocked()
}

func (m *Room) grantLocked() {
	for c := range classes {
		for len(m.lines[c]) > 0 && m.fits(c) {
			m.granted.Add(1)
			m.replyLocked(c, Granted)
		}
	}
}

// replyLocked ends the wait of the first operation in a line.
func (m *Room) replyLocked(c Class, out Outcome) {
	first := m.lines[c][0]
	m.lines[c] = m.lines[c][1:]
	m.waiting[c].Add(-1)
	first.reply <- out // it has a buffer
}

// RetryAll makes all waiting operations check again, because they may no longer need room.
func (m *Room) RetryAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range classes {
		for len(m.lines[c]) > 0 {
			m.replyLocked(c, Retry)
		}
	}
}

// Close makes all waiting operations check again, now and whenever one joins a line, because
// nothing more is counted. It may be called several times.
func (m *Room) Close() {
	m.closed.Store(true)
	m.RetryAll()
}

// join puts an operation in line.
func (m *Room) join(c Class) *waiter {
	w := &waiter{class: c, reply: make(chan Outcome, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines[c] = append(m.lines[c], w)
	m.waiting[c].Add(1)
	return w
}

// leave removes an operation from its line and returns Refused. If the operation had a reply
// meanwhile, leave returns that.
func (m *Room) leave(w *waiter) Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	line := m.lines[w.class]
	if i := slices.Index(line, w); i >= 0 {
		m.lines[w.class] = slices.Delete(line, i, i+1)
		m.waiting[w.class].Add(-1)
		return Refused
	}
	return <-w.reply
}

// pace measures how many keys a second the store accepts while it has any to accept. Older
// measurements fade, but only as time is spent on exchanges, so an idle store keeps its measured
// pace.
type pace struct{ keys, seconds float64 }

// paceMemory is the time spent on exchanges after which a measurement's weight has dropped to a
// third.
const paceMemory = time.Second

// guessWeight is the weight of the first guess, in seconds: a tenth of paceMemory.
const guessWeight = 0.1

// record adds an exchange of this many keys.
func (p *pace) record(keys int, took time.Duration) {
	seconds := max(took, time.Microsecond).Seconds()
	fade := math.Exp(-seconds / paceMemory.Seconds())
	p.keys = p.keys*fade + float64(keys)
	p.seconds = p.seconds*fade + seconds
}

// timeFor returns how long the store takes for this many keys, at most a year.
func (p *pace) timeFor(keys int64) time.Duration {
	const year = 365 * 24 * 3600
	return time.Duration(min(year, float64(keys)*p.seconds/p.keys) * float64(time.Second))
}

// keysWithin returns how many keys the store accepts within d, at least one.
func (p *pace) keysWithin(d time.Duration) int64 {
	return max(1, int64(p.keys/p.seconds*d.Seconds()))
}
