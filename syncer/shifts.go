package syncer

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Every partition is due once in a flush interval, but not all at the same time. Otherwise a caller
// that waits for the store would wait for all of them.
const (
	mostShifts    = 8
	shortestShift = 5 * time.Millisecond
)

// shifts determines when the partitions of a batcher are due by the clock: in groups, one after the
// other. A shift whose partitions have nothing to do rests, and costs nothing, until one of them
// has something (rouse) or it is time to verify that the store still has everything.
type shifts struct {
	interval time.Duration // between flushes
	rest     time.Duration // the longest that a shift rests
	list     []*shift

	mu    sync.Mutex
	last  int           // the shift that was due last
	at    time.Time     // time of the last shift
	step  time.Duration // from the last shift to the next one
	timer *time.Timer   // nil until start
	first *shift        // the shift that is due next
	dueAt time.Time     // time of the first shift
}

// shift is a group of partitions that are due at the same time.
type shift struct {
	of      *shifts
	number  int
	parts   []*partition
	resting atomic.Bool
	until   time.Time // earliest time at which it is due; guarded by shifts.mu
}

// newShifts divides partitions into shifts. None of them rests at first.
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

// start returns the timer that fires when next should be called.
func (s *shifts) start() *time.Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.step = time.Now(), s.jitter()
	s.timer = time.NewTimer(s.interval)
	s.findFirst()
	return s.timer
}

// next returns the shift that is due now, or nil if none is. The shift rests from then on until it
// is roused.
func (s *shifts) next() *shift {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, now := s.first, time.Now()
	if s.dueAt.After(now) {
		return nil // the timer fired for one shift while another was being roused
	}
	s.last, s.at, s.step = h.number, now, s.jitter()
	h.until = now.Add(s.rest)
	h.resting.Store(true)
	s.findFirst()
	return h
}

// rouse makes the shift due the next time its turn comes.
func (h *shift) rouse() { h.rouseAt(time.Time{}) }

// rouseAt makes the shift due the first time its turn comes at or after t, or from now on if t has
// passed.
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
		if s.moveUp(h) {
			s.setTimer()
		}
	}
}

// findFirst finds the shift that is due next. If several are late, it is the one whose turn came
// first.
func (s *shifts) findFirst() {
	s.first = nil
	for _, h := range s.list {
		s.moveUp(h)
	}
	s.setTimer()
}

// moveUp makes a shift the first if it is due earlier, and reports whether it has done so.
func (s *shifts) moveUp(h *shift) bool {
	at := s.due(h)
	if s.first != nil && !at.Before(s.dueAt) {
		return false
	}
	s.first, s.dueAt = h, at
	return true
}

// setTimer sets the timer for the first shift.
func (s *shifts) setTimer() {
	if s.timer != nil {
		s.timer.Reset(time.Until(s.dueAt))
	}
}

// due returns when a shift is due. Each has its turn once in an interval.
func (s *shifts) due(h *shift) time.Time {
	n := len(s.list)
	turn := s.at.Add(s.step * time.Duration((h.number-s.last+n-1)%n+1))
	if late := h.until.Sub(turn); late > 0 {
		interval := s.step * time.Duration(n)
		turn = turn.Add((late + interval - 1) / interval * interval)
	}
	return turn
}

// jitter returns one shift's part of the flush interval, plus or minus a tenth, so that nodes don't
// flush in step.
func (s *shifts) jitter() time.Duration {
	i := s.interval
	return (i - i/10 + rand.N(i/5+1)) / time.Duration(len(s.list))
}
