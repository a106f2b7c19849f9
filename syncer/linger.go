package syncer

import (
	"sync/atomic"
	"time"
)

// linger is how long dirty keys stay in memory beyond a flush interval, so that more events of a
// key share a write. It is 0 while the store easily keeps up. While flushes keep a batcher busy for
// more than a quarter of the time, it grows, up to a part of the lag; with four exchanges at a time
// the store then has one under way all the time. It ends when the backlog fills the room, because a
// store that suddenly becomes slower would not accept all of it within the lag.
//
// Only the batcher changes it, except for end.
type linger struct {
	least, most time.Duration // if it is not 0
	current     atomic.Int64
	ended       atomic.Bool   // since adapt was called last
	busy        time.Duration // in exchanges since
	since       time.Time
}

const (
	// leastLoad is the number of keys from which an exchange counts as load. The time of a smaller
	// one is mostly that of the way to the store and back.
	leastLoad = 64
	// busyPart is the part of the time in exchanges, a quarter, beyond which keys linger longer.
	// With less than half of that they linger less.
	busyPart = 4
)

func (l *linger) now() time.Duration { return time.Duration(l.current.Load()) }

// end ends the linger before the next turn, because an operation waits for room.
func (l *linger) end() { l.ended.Store(true) }

// record adds an exchange.
func (l *linger) record(keys int, took time.Duration) {
	if keys >= leastLoad {
		l.busy += took
	}
}

// adapt doubles or halves the linger according to the load since the last change, at most once
// within the time that it takes to flush all partitions. If the room is filling it ends.
func (l *linger) adapt(filling bool, now time.Time) {
	current, passed := l.now(), now.Sub(l.since)
	switch {
	case l.ended.Swap(false) || filling:
		current = 0
	case passed < l.least+current:
		return
	case l.busy > passed/busyPart:
		current = min(l.most, max(l.least, 2*current))
	case l.busy < passed/busyPart/2:
		current /= 2
	}
	if current < l.least {
		current = 0
	}
	l.current.Store(int64(current))
	l.busy, l.since = 0, now
}
