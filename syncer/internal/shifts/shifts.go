package shifts

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

// Plan has the shifts of a batcher. One that rests is due again once it is roused, or when it is
// time to verify that the store still has everything.
type Plan struct {
	interval time.Duration // between flushes
	rest     time.Duration // the longest that a shift rests
	list     []*Shift

	mu    sync.Mutex
	last  int           // the shift that was due last
	at    time.Time     // time of the last shift
	step  time.Duration // from the last shift to the next one
	timer *time.Timer   // nil until Start
	first *Shift        // the shift that is due next
	dueAt time.Time     // time of the first shift
}

// Shift is a group of partitions that are due at the same time.
type Shift struct {
	of     *Plan
	number int
	// The shift has the partitions of the batcher in [From, To).
	From, To int
	resting  atomic.Bool
	until    time.Time // earliest time at which it is due; guarded by Plan.mu
}

// New divides a number of partitions into shifts. None of them rests at first.
func New(parts int, interval, rest time.Duration) *Plan {
	n := max(1, min(mostShifts, parts, int(interval/shortestShift)))
	s := &Plan{interval: interval, rest: rest, last: n - 1}
	for i := range n {
		s.list = append(s.list, &Shift{of: s, number: i, From: i * parts / n,
			To: (i + 1) * parts / n})
	}
	return s
}

// All returns the shifts.
func (s *Plan) All() []*Shift { return s.list }

// IsResting reports whether the shift rests.
func (h *Shift) IsResting() bool { return h.resting.Load() }

// Start returns the timer that fires when Next should be called.
func (s *Plan) Start() *time.Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.step = time.Now(), s.jitter()
	s.timer = time.NewTimer(s.interval)
	s.findFirst()
	return s.timer
}

// Next returns the shift that is due now, or nil if none is. The shift rests from then on until it
// is roused.
func (s *Plan) Next() *Shift {
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

// Rouse makes the shift due the next time its turn comes.
func (h *Shift) Rouse() { h.RouseAt(time.Time{}) }

// RouseAt makes the shift due the first time its turn comes at or after t, or from now on if t has
// passed.
func (h *Shift) RouseAt(t time.Time) {
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
func (s *Plan) findFirst() {
	s.first = nil
	for _, h := range s.list {
		s.moveUp(h)
	}
	s.setTimer()
}

// moveUp makes a shift the first if it is due earlier, and reports whether it has done so.
func (s *Plan) moveUp(h *Shift) bool {
	at := s.due(h)
	if s.first != nil && !at.Before(s.dueAt) {
		return false
	}
	s.first, s.dueAt = h, at
	return true
}

// setTimer sets the timer for the first shift.
func (s *Plan) setTimer() {
	if s.timer != nil {
		s.timer.Reset(time.Until(s.dueAt))
	}
}

// due returns when a shift is due. Each has its turn once in an interval.
func (s *Plan) due(h *Shift) time.Time {
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
func (s *Plan) jitter() time.Duration {
	i := s.interval
	return (i - i/10 + rand.N(i/5+1)) / time.Duration(len(s.list))
}
