package syncer

import (
	"time"

	"twotier.dev/twotier/syncer/internal/rounds"
)

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

func newReadWidth(timeout time.Duration) readWidth {
	return readWidth{timeout: timeout, most: firstReads}
}

// begin begins to cut an exchange.
func (w *readWidth) begin() { w.cut = 0 }

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

// readsIn returns the number of reads in the store's answers to some rounds.
func readsIn(sent []*rounds.Round) (reads int) {
	for _, r := range sent {
		for i := range r.Parts {
			if k := &r.Parts[i]; k.Load && r.Err == nil {
				reads += rounds.ReadsOfKey + len(k.Loaded)
			}
		}
	}
	return reads
}
