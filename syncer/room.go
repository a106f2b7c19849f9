package syncer

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// room limits how many keys of a flusher wait for the store at a time, so that none waits longer
// than Options.MaxLag. The limit is what the store takes in a fraction of that time, at the pace
// last measured. An operation that puts one more key on a dirty list needs room. One that adds to a
// key that is already on a list needs none.
//
// Room that was granted can't be revoked, so little is granted: known keys may fill a sixteenth of
// the lag and new keys half of that, so that a flood of new keys leaves room for known ones. The
// rest is for a store that suddenly becomes slower. If it becomes k times slower, what waits takes
// k/16 of the lag, and what overtakes it (see takeLargest) takes another eighth. So nothing gets
// older than the lag while k is at most 14, of which README promises 10.
type room struct {
	lag     time.Duration // 0: there is always room
	timeout time.Duration // of an exchange
	// atOnce is how many keys an exchange may have: one that takes too long gets no answer. Only
	// the batcher's goroutine uses it.
	atOnce int

	// owed counts the keys that wait for the store, except in partitions whose rounds fail.
	owed    atomic.Int64
	granted atomic.Int64 // to operations that waited for it and have not given it back
	most    [classes]atomic.Int64
	waiting [classes]atomic.Int64
	perTurn atomic.Int64 // keys that the store takes in turnTime
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

// classParts says which fraction of the lag (a sixteenth, a thirty-second) may be filled when a key
// of each class is let in.
var classParts = [classes]time.Duration{knownKey: 16, newKey: 32}

const (
	// timeoutParts and lagParts say which fraction of its timeout, and of the lag, an exchange may
	// take at the pace of earlier ones.
	lagParts     = 8
	timeoutParts = 2
	// leastAtOnce is how many keys an exchange may have in any case, firstAtOnce how many the first
	// one may have.
	leastAtOnce = 64
	firstAtOnce = 256
)

// waiter is an operation that waits for room. told receives true if it was granted room, and false
// if it should look again.
type waiter struct{ told chan bool }

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
// and an upper bound: its part of what the store takes in turnTime.
func (m *room) share(owed int64, most int) int {
	most = min(most, m.atOnce)
	all, turn := m.owed.Load(), m.perTurn.Load()
	if all <= turn {
		return most
	}
	return min(most, max(leastShare, int(owed*turn/all)))
}

// note takes in an exchange in which the store took this many keys, and grants the room that is
// free now to operations in line.
func (m *room) note(keys int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if keys > 0 {
		m.pace.note(keys, took)
		m.resize()
	}
	for class := range m.lines {
		for len(m.lines[class]) > 0 && m.fits(class) {
			m.granted.Add(1)
			m.tell(class, true)
		}
	}
}

// tell ends the wait of the first operation in a line.
func (m *room) tell(class int, granted bool) {
	first := m.lines[class][0]
	m.lines[class] = m.lines[class][1:]
	m.waiting[class].Add(-1)
	first.told <- granted
}

// retryAll makes all waiting operations look again, because they may no longer need room.
func (m *room) retryAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for class := range m.lines {
		for len(m.lines[class]) > 0 {
			m.tell(class, false)
		}
	}
}

// close makes all waiting operations look again, now and whenever one joins: nothing more is
// counted.
func (m *room) close() {
	m.closed.Store(true)
	m.retryAll()
}

// join puts an operation in line.
func (m *room) join(class int) *waiter {
	n := &waiter{told: make(chan bool, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines[class] = append(m.lines[class], n)
	m.waiting[class].Add(1)
	return n
}

// leave takes an operation out of a line. It reports whether the operation was granted room
// meanwhile.
func (m *room) leave(class int, n *waiter) (granted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.lines[class], n); i >= 0 {
		m.lines[class] = slices.Delete(m.lines[class], i, i+1)
		m.waiting[class].Add(-1)
		return false
	}
	return <-n.told
}

// anyWaiting reports whether any operation waits for room.
func (m *room) anyWaiting() bool {
	return m.waiting[knownKey].Load() > 0 || m.waiting[newKey].Load() > 0
}

// mostWait bounds the result of expected: further ahead, the pace of the store is anyone's guess.
const mostWait = time.Minute

// expected estimates how long it takes until there is room for one more key of a class, behind all
// operations in line, if the store keeps its pace.
func (m *room) expected(class int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	ahead := m.owed.Load() + m.granted.Load() + 1 - m.most[class].Load()
	for c := range class + 1 {
		ahead += m.waiting[c].Load()
	}
	return min(mostWait, m.pace.takes(max(1, ahead)))
}
