package syncer

import (
	"cmp"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// mostWeighed is how many keys compete for the half of a round with the largest counts. The next
// round weighs other keys.
//
// When more keys wait than the store accepts in a moment, a round holds only a part of a
// partition's dirty keys. Half of it goes to the keys that have waited longest, so that none waits
// for ever. The other half goes to the keys with the largest pending counts, so that a crash loses
// as little as possible. At the pace last measured, every partition in the queue has a turn within
// a second, see [room.Room.Share].
const mostWeighed = 4096

// weighed is an entry and the size of its pending counts.
type weighed struct {
	at arena.Ref
	n  int64
}

// addLargest adds the keys with the largest pending counts, out of turn, if not all keys fit into
// the round. They stay on the dirty list. When their turn comes, they only flush newer counts, if
// any.
func (f *flushing) addLargest(r *rounds.Round, now time.Time) {
	some := f.dirty.Waiting()
	if !f.dirty.Due || len(some) <= r.Most || f.overdue(now) {
		return
	}
	if f.dirty.Weighed >= len(some) {
		f.dirty.Weighed = 0
	}
	some = some[f.dirty.Weighed:min(len(some), f.dirty.Weighed+mostWeighed)]
	f.dirty.Weighed += len(some)
	found := f.scratch.weighed[:0]
	for part := range slices.Chunk(some, keys.TouchAtOnce) {
		f.keys.Touch(part)
		for _, at := range part {
			if n := f.keys.Weigh(f.keys.Entry(at)); n > 1 {
				found = append(found, weighed{at, n})
			}
		}
	}
	slices.SortFunc(found, func(a, b weighed) int { return cmp.Compare(b.n, a.n) })
	f.scratch.weighed = found
	for _, w := range found[:min(len(found), r.Most/2)] {
		if r.Full() {
			return
		}
		e := f.keys.Entry(w.at)
		f.addEntry(r, w.at, e, e.Has(keys.FlagCold))
	}
}

// turnAgain returns the time since which a partition with more to flush counts as due. That is now,
// behind all others in the queue, unless its counts are overdue: serving others first would make
// them older than allowed.
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

// overduePart is the fraction of the lag (a quarter) after which the oldest counts of all
// partitions are flushed first, and nothing younger along with them. Otherwise an exchange would
// have little room for a partition that has more waiting than others.
const overduePart = 4

// overdue returns how long the partitions of the next exchange must have been due: 0, unless the
// first in the queue has waited too long.
func (l *batcher) overdue() time.Duration {
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

// keysAccepted returns how many keys the store has accepted in these rounds.
func keysAccepted(rounds []*rounds.Round) (n int) {
	for _, r := range rounds {
		if r.Err == nil && r.Seq != 0 {
			n += len(r.Keys)
		}
	}
	return n
}

// flushSoon makes the batcher flush early, because an operation waits for room. If the batcher has
// partitions in its queue, it serves these first.
func (l *batcher) flushSoon() {
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
			l.flushAll(l.parts[i : i+1])
		}
	}
	l.wake()
}
