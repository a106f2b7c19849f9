package syncer

import (
	"time"

	"twotier.dev/twotier/leaparray"
)

// readWidth bounds the buckets that an exchange may bring back, because a store takes time for
// each: by its ladder, one key may have thousands. What keys have is known only once they are read,
// so each counts as what it may have at most. The bound follows the pace of the last exchanges: it
// doubles while these are fast, and after a slow one it is what the store sent within half of the
// time that an exchange has. Only the batcher's goroutine uses it.
type readWidth struct {
	timeout time.Duration // of an exchange
	most    int           // per exchange
	cut     int           // of the exchange that is being cut
}

const (
	// firstReads bounds the first exchange. Redis takes about a microsecond for a bucket.
	firstReads = 64 << 10
	// flushReads is what a round that flushes may bring back: it holds up others, and is sent again
	// unchanged until there is an answer.
	flushReads = 16 << 10
	// mostReads is what the largest exchange has if all keys have the default ladder.
	mostReads = 1 << 20
	// readsOfKey is the part of the time for a key that does not depend on its buckets.
	readsOfKey = 8
)

// readsOf returns what a key with this ladder counts as.
func readsOf(l *leaparray.Ladder) int { return readsOfKey + l.Most() }

func newReadWidth(timeout time.Duration) readWidth {
	return readWidth{timeout: timeout, most: firstReads}
}

// begin begins to cut an exchange.
func (w *readWidth) begin() { w.cut = 0 }

// add adds a round to the exchange.
func (w *readWidth) add(r *Round) { w.cut += r.reads }

// left returns how much more the exchange may bring back, at least what one key has.
func (w *readWidth) left() int { return max(1, w.most-w.cut) }

// full reports whether the exchange brings back as much as it may.
func (w *readWidth) full() bool { return w.cut >= w.most }

// note takes in how much of an exchange has come back, and how long that took.
func (w *readWidth) note(reads int, took time.Duration) {
	switch {
	case took > w.timeout/2:
		inTime := int64(reads) * int64(w.timeout/2) / int64(took)
		w.most = max(readsOfKey, min(w.most/2, int(inTime)))
	case took < w.timeout/4 && w.full():
		w.most = min(2*w.most, mostReads)
	}
}

// readsIn returns how much the store has sent in answer to some rounds.
func readsIn(rounds []*Round) (reads int) {
	for _, r := range rounds {
		for i := range r.Keys {
			if k := &r.Keys[i]; k.Load && r.Err == nil {
				reads += readsOfKey + len(k.Loaded)
			}
		}
	}
	return reads
}
