package syncer

import (
	"sync/atomic"
	"time"

	"twotier.dev/twotier/syncer/internal/rounds"
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

// congestion bounds the number of rounds in one exchange with a slow store, the way TCP bounds the
// data in flight (slow start and congestion avoidance, RFC 5681): one round after an exchange in
// which all failed, then twice as many each time, and a sixteenth more each time from half of the
// number that failed. Sending all due rounds again at once could keep the store from ever answering
// in time.
type congestion struct {
	width     int
	threshold int // from here it grows slowly
}

// maxRounds bounds the rounds of an exchange.
const maxRounds = 256

// record adapts the width to the outcome of an exchange of this many rounds. A single failed round
// is no evidence of how many are too many.
func (c *congestion) record(rounds int, failed bool) {
	switch {
	case failed && rounds > 1:
		c.width, c.threshold = 1, max(1, rounds/2)
	case failed:
		c.width = 1
	case c.width < c.threshold:
		c.width = min(2*c.width, c.threshold)
	default:
		c.width = min(c.width+max(1, c.width/16), maxRounds)
	}
}

// readWidth bounds the buckets that an exchange may load, because a store takes time for each: a
// ladder can allow a key thousands. The number of a key's buckets is unknown until they are read,
// so each key counts with its maximum. The bound follows the pace of the last exchanges: it doubles
// while these are fast, and after a slow one it drops to the number that the store sent within half
// of an exchange's timeout. Only the batcher's goroutine uses it.
type readWidth struct {
	timeout time.Duration // of an exchange
	most    int           // per exchange
	cut     int           // of the exchange that is being cut
}

const (
	// firstReads bounds the first exchange. Redis takes about a microsecond for a bucket.
	firstReads = 64 << 10
	// mostReads is the bound of the largest exchange if all keys have the default ladder.
	mostReads = 1 << 20
)

// add adds a round to the exchange.
func (w *readWidth) add(r *rounds.Round) { w.cut += r.Reads }

// remaining returns how many more reads the exchange may have, at least one.
func (w *readWidth) remaining() int { return max(1, w.most-w.cut) }

// full reports whether the exchange has reached its maximum.
func (w *readWidth) full() bool { return w.cut >= w.most }

// record records the reads that an exchange returned, and its duration.
func (w *readWidth) record(reads int, took time.Duration) {
	switch {
	case took > w.timeout/2:
		inTime := int64(reads) * int64(w.timeout/2) / int64(took)
		w.most = max(rounds.ReadsOfKey, min(w.most/2, int(inTime)))
	case took < w.timeout/4 && w.full():
		w.most = min(2*w.most, mostReads)
	}
}
