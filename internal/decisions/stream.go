package decisions

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// Lines accepts lines. A linelog.Log is one.
type Lines interface {
	// Add accepts a line with its end. It doesn't wait, and keeps nothing of it.
	Add(line ...byte) bool
}

// Stream writes decisions. Make one with [New].
type Stream struct {
	to    Lines
	node  string
	now   func() time.Time
	below [twotier.VerdictCount]uint64 // a verdict is chosen if a random number is below this
	pool  sync.Pool                    // of *[]byte, the memory of lines
}

// New returns a stream of a node's decisions. share is the sampling rate by verdict, from 0 to 1.
func New(to Lines, node string, share [twotier.VerdictCount]float64, now func() time.Time) *Stream {
	s := &Stream{to: to, node: node, now: now}
	for v, p := range share {
		// All 64 bits of the random number make a rate of 1 certain and a rate of 0 impossible.
		switch {
		case p >= 1:
			s.below[v] = math.MaxUint64
		case p > 0:
			s.below[v] = uint64(p * math.MaxUint64)
		}
	}
	return s
}

// Record writes a line, if it chooses the decision. It keeps nothing of d.
func (s *Stream) Record(d *Decision) {
	below := s.below[d.Verdict]
	if below < math.MaxUint64 && rand.Uint64() >= below {
		return
	}
	b, ok := s.pool.Get().(*[]byte)
	if !ok {
		b = new([]byte)
	}
	*b = appendLine((*b)[:0], d, s.node, s.now())
	s.to.Add(*b...)
	s.pool.Put(b)
}
