package syncer

import (
	"cmp"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
)

// When more waits for the store than it takes in a moment, a round has less than all that a
// partition could flush. Half of it is what has waited the longest, so that nothing waits for ever;
// the other half is what has counted most, so that what a crash loses is worth the least. Every
// partition in line has a turn within turnTime, at the pace that was measured last.
const (
	turnTime = time.Second
	// leastShare is how many keys a round may have in any case: fewer would cost the store more for
	// the round than for them.
	leastShare = 16
	// mostWeighed is how many keys compete for the half of the largest. The next round weighs
	// others.
	mostWeighed = 4096
)

// weighed is an entry and what is pending of it.
type weighed struct {
	at arena.Ref
	n  int64
}

// takeLargest adds the keys that have counted most, out of their turn, if not all keys fit into the
// round. They stay on the dirty list, where nothing is left of them to flush when their turn comes,
// or what was counted since.
func (f *flushing) takeLargest(r *Round, now time.Time) {
	some := f.dirty.waiting()
	if !f.dirty.due || len(some) <= r.most || f.overdue(now) {
		return
	}
	if f.dirty.weighed >= len(some) {
		f.dirty.weighed = 0
	}
	some = some[f.dirty.weighed:min(len(some), f.dirty.weighed+mostWeighed)]
	f.dirty.weighed += len(some)
	found := f.scratch.weighed[:0]
	for part := range slices.Chunk(some, touchAtOnce) {
		f.keys.touch(part)
		for _, at := range part {
			if n := f.keys.weigh(f.keys.entry(at)); n > 1 {
				found = append(found, weighed{at, n})
			}
		}
	}
	slices.SortFunc(found, func(a, b weighed) int { return cmp.Compare(b.n, a.n) })
	f.scratch.weighed = found
	for _, w := range found[:min(len(found), r.most/2)] {
		if r.full() {
			return
		}
		e := f.keys.entry(w.at)
		f.take(r, w.at, e, e.has(flagCold))
	}
}

// weigh is how much is pending of an entry that may be taken.
func (s *keyspace) weigh(e entry) (n int64) {
	if e.has(flagBusy|flagParked) || !e.hasPending() {
		return 0
	}
	n = coarsestSum(s.ladder(e), s.pending(e))
	return max(n, -n)
}

// owes reports whether there is anything about an entry that the store has to be told or asked.
func (e entry) owes() bool {
	return e.hasPending() || e.has(flagReset|flagRenew|flagShared)
}

// turnAgain is when a partition that has more to flush came to be due: now, behind all others in
// line, unless what it has is so old that others would make it older than may be.
func (l *batcher) turnAgain(p *partition) time.Time {
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

// overduePart is the part of the lag after which what is the oldest is flushed first, wherever it
// is, and nothing that is younger with it: of a partition that has more than others an exchange
// could take little otherwise.
const overduePart = 4

// overdue is for how long the partitions of the next exchange must have been due: 0, unless the
// first in line has waited for too long.
func (l *batcher) overdue() time.Duration {
	if l.room.lag == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := l.room.lag / overduePart; len(l.due) > 0 && time.Since(l.due[0].since) > most {
		return most
	}
	return 0
}

// keysTaken is how many keys the store has taken with some rounds.
func keysTaken(rounds []*Round) (n int) {
	for _, r := range rounds {
		if r.Err == nil && r.Seq != 0 {
			n += len(r.Keys)
		}
	}
	return n
}

// flushSoon has the batcher flush, although it is not time yet: somebody waits for room. If it has
// something to do, it does so after that.
func (l *batcher) flushSoon() {
	l.mu.Lock()
	idle := len(l.due) == 0
	l.flushAgain = !idle
	l.mu.Unlock()
	if idle {
		l.flushOwed()
	}
}

// flushOnceIdle has the batcher flush once nobody is in the queue any more, if it was to flush
// again meanwhile: who was served before may have more.
func (l *batcher) flushOnceIdle() {
	l.mu.Lock()
	on := l.flushAgain && len(l.due) == 0
	l.flushAgain = l.flushAgain && !on
	l.mu.Unlock()
	if on {
		l.flushOwed()
	}
}

// flushOwed has the partitions flush that take up room. Where there is little, most don't.
func (l *batcher) flushOwed() {
	for i, p := range l.parts {
		if p.owed.reported.Load() > 0 {
			l.flushAll(l.parts[i : i+1])
		}
	}
	l.wake()
}
