package syncer

import (
	"slices"
	"time"

	"twotier.dev/twotier/syncer/internal/rounds"
)

// This file decides which part of a partition may exchange rounds with the store. None may while a
// writing round is in flight, during the pause after a failure, or while a handoff is about to
// happen. A restoration goes first, because flushes rely on the restored data. Loads may overlap
// with flushes, except loads of keys whose answer may or may not include the round in flight.

// cut returns the partition's next round for the store. It returns nil if there is nothing to
// exchange, if it is too early to retry, or if a round is already with the store. The round stays
// the partition's flight until it is settled.
func (p *partition) cut() (r *rounds.Round, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.outbox.Sent || p.ownership.isSealed() || p.outbox.Retry.Waiting(now) {
		return nil, false
	}
	if p.restoration.active() {
		r = p.restoration.cut()
	} else {
		r = p.flushing.cut(now)
	}
	if p.outbox.Sent = r != nil; p.outbox.Sent {
		p.setExpectedState(r)
	}
	return r, false
}

// nextDue returns when the clock should make the partition due next, if ever: at once if it has
// something to send or to retry, otherwise when it is time to verify.
func (p *partition) nextDue() (at time.Time, ever bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); !p.dirty.IsEmpty() || !p.mayRest(now) {
		return now, true
	}
	return p.flushing.nextVerification()
}

// mayRest reports whether the partition has nothing to do for the store, except perhaps to flush
// dirty keys that nobody waits for.
func (g *guarded) mayRest(now time.Time) bool {
	return !g.pinned() && g.outbox.IsEmpty() && len(g.shared) == 0 && len(g.parked.Refs) == 0 &&
		!g.loads.Exclusive && !g.flushing.verifyDue(now)
}

// lingers reports whether the dirty keys wait for more of their events, until this long after the
// last flush.
func (g *guarded) lingers(linger time.Duration, now time.Time) bool {
	return now.Sub(g.dirty.CutAt) < linger && !g.dirty.IsDue() && g.ownership == owned &&
		g.phase < draining && g.mayRest(now)
}

// setExpectedState puts the state in the store's latest answer, even one to a load, into a round.
// The store compares it with its data to detect a loss.
func (g *guarded) setExpectedState(r *rounds.Round) {
	last := g.store.Latest()
	if g.restoration.active() {
		last = g.restoration.job.Told
	}
	r.Expect(last)
}

// settle processes the outcome of a round. It reports whether the partition has more to send at
// once.
func (p *partition) settle(r *rounds.Round) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.settled.wake()
	p.outbox.Sent = false
	if more = p.settleOutcome(r); len(p.loads.Waiting) > 0 {
		// These could not be loaded while the round was in flight, or the round was to load them
		// and did not.
		p.loader.schedule(p)
	}
	return more
}

func (g *guarded) settleOutcome(r *rounds.Round) (more bool) {
	if r.Err != nil {
		g.flushing.fail(r)
		return false
	}
	g.recordSuccess()
	if r.Lost {
		// Two Redis servers behind one address lose each other's data without end.
		g.outbox.Retry.Postpone(time.Now())
	}
	switch {
	case r.Republish:
		g.restoration.settle(r)
	case r.Lost && g.restoration.active():
		// The round was sent before another counter handed over its counts, along with the news of
		// the loss. Those counts are in the store already. They must not be taken for counts from
		// before the loss.
	case r.Lost:
		g.restoration.beginAfterLoss(r.Told())
	case r.Used || r.Later && !r.Imported && !g.outbox.MaybeSent:
		g.flushing.changeWriter(r)
	default:
		more = g.flushing.settle(r)
		g.rebuild()
		return more
	}
	return true
}

// recordSuccess records an answer to a round that no other overlapped.
func (g *guarded) recordSuccess() {
	g.outbox.Retry.Succeed()
	g.store.EndSuspicion()
	g.store.ContactAt = time.Now()
	g.reportOwed()
}

// probe makes the partition ask the store even if it has no key to load.
func (p *partition) probe() {
	p.mu.Lock()
	p.loads.Probe = true
	p.mu.Unlock()
	p.loader.schedule(p)
}

// wakeWaiters makes all operations that wait for a round, or for room, look again.
func (p *partition) wakeWaiters() {
	p.flusher.room.RetryAll()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled.wake()
}

// cutLoad returns a round that loads the keys that operations wait for, or nil if nothing can be
// loaded now. The loaded counts are exactly the store's, without this counter's pending ones.
func (p *partition) cutLoad() (r *rounds.Round, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.loads.Waiting) == 0 && !p.loads.Probe, p.loads.UnderWay != nil:
		return nil, false
	case p.store.Report == rounds.Suspected || p.pinned() || p.outbox.MaybeSent ||
		len(p.outbox.Queue) > 0:
		return nil, p.loads.Probe // once that is over, settle schedules the waiting keys
	case p.loads.Retry.Waiting(time.Now()):
		return nil, true
	}
	if r = p.loads.cut(); r != nil {
		p.setExpectedState(r)
	}
	return r, false
}

// settleLoad processes the outcome of a round that only loaded. It reports whether there is more to
// load at once.
func (p *partition) settleLoad(r *rounds.Round) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.settled.wake()
	if r.Err != nil {
		if !p.loads.Retry.Failing() {
			p.reachedAtFailure = p.health.reached.Load()
		}
		p.loads.fail(r)
		p.loader.postpone(p)
		return false
	}
	if p.loads.settle(r) {
		p.flusher.schedule(p)
	}
	p.dirty.Shift.Rouse() // a partition with its first key has to be verified from now on
	p.rebuild()
	return len(p.loads.Waiting) > 0 || p.loads.Probe
}

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
	l.signal.send()
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
	l.signal.send()
}
