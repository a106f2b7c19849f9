package syncer

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// room is how many keys of a flusher may wait for the store at a time, so that none waits for
// longer than Options.MaxLag: as many as the store takes in a part of that, at the pace that was
// measured last. An operation that puts one more on a dirty list needs room; what adds to a key
// that is on one needs none.
//
// What it has once let in it can't take back, so it lets in little: keys that are known may fill a
// sixteenth of the lag, and new ones half of that, so that a flood of them leaves room for those.
// The rest is for a store that becomes slower all at once. If it is k times slower, what waits
// takes k/16 of the lag; what overtakes it (see takeLargest) takes another eighth. So nothing gets
// older than the lag while k is at most 14, of which README promises 10.
type room struct {
	lag     time.Duration // 0: there is always room
	timeout time.Duration // of an exchange
	// atOnce is how many keys an exchange may have: one that takes too long has no answer. Only
	// the batcher's goroutine uses it.
	atOnce int

	// owed counts the keys that wait for the store, but for those of partitions whose rounds fail.
	owed    atomic.Int64
	granted atomic.Int64 // to operations that have waited for it and not come back yet
	most    [classes]atomic.Int64
	waiting [classes]atomic.Int64
	perTurn atomic.Int64 // how many keys the store takes in turnTime
	refused atomic.Int64 // how many operations have waited in vain
	closed  atomic.Bool

	mu    sync.Mutex
	pace  pace
	lines [classes][]*waiter // those that wait for room, first come first served
}

// The classes of keys that need room.
const (
	knownKey = iota
	newKey
	classes
)

// classParts is which part of the lag the keys of a class, and those before it, may fill.
var classParts = [classes]time.Duration{knownKey: 16, newKey: 32}

const (
	// timeoutParts and lagParts are which parts of its timeout, and of the lag, an exchange may
	// take at the pace of those before.
	lagParts     = 8
	timeoutParts = 2
	// leastAtOnce is how many keys an exchange may have in any case, firstAtOnce the first one.
	leastAtOnce = 64
	firstAtOnce = 256
)

// waiter is an operation that waits for room. It is told whether it has some, or is to look again.
type waiter struct{ told chan bool }

// init sets the lag, and for a store that nothing is known of that it is a slow one.
func (m *room) init(lag, timeout time.Duration) {
	m.lag, m.timeout = lag, timeout
	m.pace = newPace(firstAtOnce * timeoutParts / timeout.Seconds())
	m.resize()
}

// resize sets the bounds by the pace.
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

// open reports whether there is room for a key of a class, and nobody waits for it who came before.
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

// share is how many of the keys owed by a partition its next round may have, of at most so many:
// its part of what the store takes in the time of a turn.
func (m *room) share(owed int64, most int) int {
	most = min(most, m.atOnce)
	all, turn := m.owed.Load(), m.perTurn.Load()
	if all <= turn {
		return most
	}
	return min(most, max(leastShare, int(owed*turn/all)))
}

// note takes in an exchange in which the store took so many keys, and lets in those that there is
// room for now.
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

// tell ends the wait of the first in a line.
func (m *room) tell(class int, granted bool) {
	first := m.lines[class][0]
	m.lines[class] = m.lines[class][1:]
	m.waiting[class].Add(-1)
	first.told <- granted
}

// retryAll has everybody who waits look again: whether room is needed may have changed.
func (m *room) retryAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for class := range m.lines {
		for len(m.lines[class]) > 0 {
			m.tell(class, false)
		}
	}
}

// close has everybody who waits look again, now and whenever somebody comes: nothing more is
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

// leave takes an operation out of a line. It reports whether it was told in the meantime that it
// has room.
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

// anyWaiting reports whether anybody waits for room.
func (m *room) anyWaiting() bool {
	return m.waiting[knownKey].Load() > 0 || m.waiting[newKey].Load() > 0
}

// mostWait bounds what expected says: who knows how fast the store is by then.
const mostWait = time.Minute

// expected is how long it may take until there is room for one more key of a class behind all who
// wait, if the store goes on at its pace.
func (m *room) expected(class int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	ahead := m.owed.Load() + m.granted.Load() + 1 - m.most[class].Load()
	for c := range class + 1 {
		ahead += m.waiting[c].Load()
	}
	return min(mostWait, m.pace.takes(max(1, ahead)))
}
