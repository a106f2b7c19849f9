package syncer

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Every partition is due once in a flush interval, but not all at the same time: who waits for the
// store would wait for that.
const (
	mostShifts    = 8
	shortestShift = 5 * time.Millisecond
)

// shifts says when the partitions of a batcher are due by the clock: in parts, one after the other.
// A shift whose partitions have nothing to do rests, and costs nothing, until one of them has
// (rouse) or it is time to ask the store whether it still has everything.
type shifts struct {
	interval time.Duration // of flushes
	rest     time.Duration // the longest
	list     []*shift

	mu    sync.Mutex
	timer *time.Timer   // nil until start
	last  int           // the shift that was due last,
	at    time.Time     // when that was,
	step  time.Duration // and how long after it the next one is
}

// shift is partitions that are due at the same time.
type shift struct {
	of      *shifts
	number  int
	parts   []*partition
	resting atomic.Bool
	until   time.Time // it is not due before; guarded by the lock of all
}

// newShifts divides partitions into shifts, none of which rests yet.
func newShifts(parts []*partition, interval, rest time.Duration) *shifts {
	n := max(1, min(mostShifts, len(parts), int(interval/shortestShift)))
	s := &shifts{interval: interval, rest: rest, last: n - 1}
	for i := range n {
		h := &shift{of: s, number: i, parts: parts[i*len(parts)/n : (i+1)*len(parts)/n]}
		s.list = append(s.list, h)
		for _, p := range h.parts {
			p.dirty.shift = h
		}
	}
	return s
}

// start returns the timer that says when next is to be called.
func (s *shifts) start() *time.Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.step = time.Now(), s.jitter()
	s.timer = time.NewTimer(time.Until(s.due(s.soonest())))
	return s.timer
}

// next returns the shift that is due now, nil if none is. It rests from then on, unless it is
// roused, and sets the timer.
func (s *shifts) next() *shift {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.setLocked()
	h, now := s.soonest(), time.Now()
	if s.due(h).After(now) {
		return nil // another was roused when the timer had gone off
	}
	s.last, s.at, s.step = h.number, now, s.jitter()
	h.until = now.Add(s.rest)
	h.resting.Store(true)
	return h
}

// rouse has the shift be due the next time that it is its turn.
func (h *shift) rouse() { h.rouseAt(time.Time{}) }

// rouseAt has it be due the first time that it is its turn from then on, or from now on.
func (h *shift) rouseAt(t time.Time) {
	if !h.resting.Load() {
		return
	}
	s := h.of
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !t.After(now) {
		t = now
		h.resting.Store(false)
	}
	if t.Before(h.until) {
		h.until = t
		s.setLocked()
	}
}

// setLocked sets the timer for the shift that is due next.
func (s *shifts) setLocked() {
	if s.timer != nil {
		s.timer.Reset(time.Until(s.due(s.soonest())))
	}
}

// soonest returns the shift that is due next: of those that are late, the one whose turn it was
// first.
func (s *shifts) soonest() *shift {
	return slices.MinFunc(s.list, func(a, b *shift) int { return s.due(a).Compare(s.due(b)) })
}

// due returns when a shift is: each has its turn once in an interval.
func (s *shifts) due(h *shift) time.Time {
	n := len(s.list)
	turn := s.at.Add(s.step * time.Duration((h.number-s.last+n-1)%n+1))
	if late := h.until.Sub(turn); late > 0 {
		interval := s.step * time.Duration(n)
		turn = turn.Add((late + interval - 1) / interval * interval)
	}
	return turn
}

// jitter is a shift's part of the flush interval, give or take a tenth, so that nodes don't flush
// in step.
func (s *shifts) jitter() time.Duration {
	i := s.interval
	return (i - i/10 + rand.N(i/5+1)) / time.Duration(len(s.list))
}
