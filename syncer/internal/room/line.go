package room

import (
	"context"
	"math"
	"slices"
	"time"
)

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

// newPace starts with a guess, whose weight is a tenth of paceMemory.
func newPace(perSecond float64) pace {
	const weight = 0.1
	return pace{keys: weight * perSecond, seconds: weight}
}

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
