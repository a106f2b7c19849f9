package syncer

import (
	"slices"
	"time"
)

// scheduled is a partition in the queue, with the time that determines its place.
type scheduled struct {
	p     *partition
	since time.Time
}

// The queues that a partition can be in.
const (
	queueFlush = iota
	queueLoad
	queues
)

// schedule puts a partition into the queue unless it is there already.
func (l *batcher) schedule(p *partition) { l.scheduleSince(p, time.Now()) }

// scheduleSince puts a partition into the queue, or moves it up, as if it had become due at since.
func (l *batcher) scheduleSince(p *partition, since time.Time) {
	l.enqueue(p, since)
	l.wake()
}

func (l *batcher) enqueue(p *partition, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := len(l.due)
	for at > 0 && since.Before(l.due[at-1].since) {
		at--
	}
	if p.inQueue[l.queue] {
		i := slices.IndexFunc(l.due[at:], func(o scheduled) bool { return o.p == p })
		if i < 0 {
			return // it is already further ahead
		}
		l.due = slices.Delete(l.due, at+i, at+i+1)
	}
	p.inQueue[l.queue] = true
	l.due = slices.Insert(l.due, at, scheduled{p, since})
}

// wake makes the batcher look at its queue.
func (l *batcher) wake() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// next removes and returns the first partition in the queue. It returns nil if the queue is empty
// or the first partition has been due for less than longer.
func (l *batcher) next(longer time.Duration) *partition {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) == 0 || time.Since(l.due[0].since) < longer {
		return nil
	}
	p := l.due[0].p
	p.inQueue[l.queue] = false
	l.due = slices.Delete(l.due, 0, 1)
	return p
}

// nextTurnSince returns the time since which a partition with more to flush counts as due. That is
// now, behind all others in the queue, unless its counts are overdue: serving others first would
// make them older than allowed.
func (l *batcher) nextTurnSince(p *partition) time.Time {
	now := time.Now()
	if l.queue != queueFlush {
		return now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overdue(now) {
		return p.waitingSince()
	}
	return now
}

// overduePart is the fraction of the lag (a quarter) after which the oldest counts of all
// partitions are flushed first, and nothing younger along with them. Otherwise an exchange would
// have little room for a partition that has more waiting than others.
const overduePart = 4

// minOverdue returns how long the partitions of the next exchange must have been due: 0, unless the
// first in the queue has waited too long.
func (l *batcher) minOverdue() time.Duration {
	if l.room.Lag() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := l.room.Lag() / overduePart; len(l.due) > 0 && time.Since(l.due[0].since) > most {
		return most
	}
	return 0
}

// flushSoon makes the batcher flush early, because an operation waits for room. If the batcher has
// partitions in its queue, it serves these first.
func (l *batcher) flushSoon() {
	l.linger.end()
	l.mu.Lock()
	idle := len(l.due) == 0
	l.flushAgain = !idle
	l.mu.Unlock()
	if idle {
		l.flushOwed()
	}
}

// flushOnceIdle flushes once the queue is empty if flushSoon was called meanwhile, because
// partitions that were already served may have more.
func (l *batcher) flushOnceIdle() {
	l.mu.Lock()
	on := l.flushAgain && len(l.due) == 0
	l.flushAgain = l.flushAgain && !on
	l.mu.Unlock()
	if on {
		l.flushOwed()
	}
}

// flushOwed flushes the partitions that take up room. When room is scarce, most partitions take up
// none.
func (l *batcher) flushOwed() {
	for i, p := range l.parts {
		if p.owed.reported.Load() > 0 {
			l.flushAll(l.parts[i:i+1], 0)
		}
	}
	l.wake()
}
