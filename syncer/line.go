package syncer

import (
	"slices"
	"time"
)

// patience is the fraction of an operation's time that it may spend waiting for room.
const patience = 0.75

// wait waits for room after admits found none. It reports whether to try again.
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
// it was granted room or should look again.
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
// next in line may. Once no granted room is outstanding, a flush begins for the operations that
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

// waiter is an operation that waits for room. told receives true if it was granted room, and false
// if it should look again.
type waiter struct{ told chan bool }

// note records an exchange in which the store accepted this many keys, and grants the room that is
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

// close makes all waiting operations look again, now and whenever one joins, because nothing more
// is counted.
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

// leave removes an operation from a line. It reports whether the operation was granted room
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

// mostWait bounds the result of expected. Beyond that, the pace of the store is anyone's guess.
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
