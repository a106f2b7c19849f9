package replay

import (
	"container/list"
	"sync"
	"time"
)

// Options configure a [Memory]. B identifies the sender of a request. Sequences, Bytes, Answers and
// Numbers are required.
type Options[B any] struct {
	// Sequences is how many sequences are remembered, Bytes the total size of their answers.
	Sequences, Bytes int
	// Answers is how long an answer is kept after its last use. Numbers is how long a sequence's
	// number is kept after its last use, and the minimum for its name. No client repeats a request
	// after that.
	Answers, Numbers time.Duration
	// FromOne declares that the first request of every sequence has number 1.
	FromOne bool
	// Continues reports whether next may continue a sequence whose last request was sent by last,
	// or read the answer to that request. Default: any sender may.
	Continues func(last, next B) bool
}

// Memory keeps the last request of each sequence and the answer to it. K is the key of a sequence,
// B identifies the sender of a request, A is an answer. Make one with [New]; its methods may be
// called concurrently.
type Memory[K comparable, B, A any] struct {
	opt Options[B]

	mu      sync.Mutex
	last    map[K]*Request[K, B, A]
	started names[K] // including forgotten sequences
	// The last requests, most recently used first. The requests in answers have an answer or will
	// get one; of the requests in numbers only the number is left.
	answers, numbers list.List
	bytes            int
}

// Request is one request of a sequence and the answer to it.
type Request[K comparable, B, A any] struct {
	key  K
	seq  uint64
	by   B
	done chan struct{} // closed once there is an answer

	// Guarded by the memory.
	used      time.Time
	at        *list.Element
	answer    A
	bytes     int // counted in Memory.bytes
	forgotten bool
}

// Verdict is the decision on a request.
type Verdict uint8

// The verdicts.
const (
	// Fresh: the request is new. The caller carries it out and calls Finish.
	Fresh Verdict = iota
	// Repeated: the request has been entered before. Answer returns its answer.
	Repeated
	// Stale: the request may be a copy of one that was carried out and whose outcome is forgotten.
	Stale
	// WrongSender: the sequence belongs to another sender.
	WrongSender
	// Full: there is no room for another sequence.
	Full
)

// New returns an empty memory.
func New[K comparable, B, A any](opt Options[B]) *Memory[K, B, A] {
	return &Memory[K, B, A]{opt: opt, last: map[K]*Request[K, B, A]{},
		started: names[K]{keep: opt.Numbers}}
}

// Begin returns the verdict on a request. Unless it is Fresh, the request must not be carried out.
// r is set if the verdict is Fresh or Repeated.
func (m *Memory[K, B, A]) Begin(key K, seq uint64, by B,
	now time.Time) (r *Request[K, B, A], v Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	last := m.last[key]
	switch {
	case last == nil:
		if v := m.beginSequenceLocked(key, seq, now); v != Fresh {
			return nil, v
		}
	case m.opt.Continues != nil && !m.opt.Continues(last.by, by):
		return nil, WrongSender
	case seq <= last.seq:
		m.touchLocked(last, now)
		if seq < last.seq {
			return nil, Stale
		}
		return last, Repeated
	}
	r = &Request[K, B, A]{key: key, seq: seq, by: by, used: now, done: make(chan struct{})}
	m.replaceLocked(last, r)
	return r, Fresh
}

// beginSequenceLocked decides whether an unknown sequence may begin, and makes room for it.
func (m *Memory[K, B, A]) beginSequenceLocked(key K, seq uint64, now time.Time) Verdict {
	if m.opt.FromOne {
		if seq != 1 {
			return Stale
		}
		if isNew, room := m.started.add(key, now); !isNew {
			return Stale
		} else if !room {
			return Full
		}
	}
	if len(m.last) < m.opt.Sequences {
		return Fresh
	}
	if !m.opt.FromOne {
		return Full
	}
	if m.numbers.Len() == 0 {
		m.forgetLocked(m.oldest(&m.answers))
	}
	m.removeLocked(m.oldest(&m.numbers))
	return Fresh
}

// replaceLocked makes r the last request of its sequence, in place of last, which may be nil.
func (m *Memory[K, B, A]) replaceLocked(last, r *Request[K, B, A]) {
	m.last[r.key] = r
	if last != nil && !last.forgotten {
		m.bytes -= last.bytes
		r.at = last.at
		r.at.Value = r
		m.answers.MoveToFront(r.at)
		return
	}
	if last != nil {
		m.numbers.Remove(last.at)
	}
	r.at = m.answers.PushFront(r)
}

// touchLocked records the use of a request.
func (m *Memory[K, B, A]) touchLocked(r *Request[K, B, A], now time.Time) {
	r.used = now
	if r.forgotten {
		m.numbers.MoveToFront(r.at)
	} else {
		m.answers.MoveToFront(r.at)
	}
}

// expireLocked forgets entries that have been unused for too long.
func (m *Memory[K, B, A]) expireLocked(now time.Time) {
	for r := m.oldest(&m.answers); r != nil && now.Sub(r.used) >= m.opt.Answers; {
		m.forgetLocked(r)
		r = m.oldest(&m.answers)
	}
	for r := m.oldest(&m.numbers); r != nil && now.Sub(r.used) >= m.opt.Numbers; {
		m.removeLocked(r)
		r = m.oldest(&m.numbers)
	}
}

// oldest returns the least recently used request of a list, or nil if the list is empty.
func (m *Memory[K, B, A]) oldest(l *list.List) *Request[K, B, A] {
	if l.Len() == 0 {
		return nil
	}
	return l.Back().Value.(*Request[K, B, A])
}

// forgetLocked forgets the answer to a request, even a future one.
func (m *Memory[K, B, A]) forgetLocked(r *Request[K, B, A]) {
	var none A
	m.bytes -= r.bytes
	r.answer, r.bytes, r.forgotten = none, 0, true
	m.answers.Remove(r.at)
	r.at = m.numbers.PushFront(r)
}

// removeLocked forgets a sequence whose answer is already forgotten.
func (m *Memory[K, B, A]) removeLocked(r *Request[K, B, A]) {
	m.numbers.Remove(r.at)
	delete(m.last, r.key)
}

// Finish stores the answer to a fresh request, whose size is bytes, and wakes all waiting copies.
// It is called once.
func (m *Memory[K, B, A]) Finish(r *Request[K, B, A], answer A, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(r.done)
	if r.forgotten {
		return
	}
	if r.answer = answer; m.last[r.key] == r {
		r.bytes = bytes
		m.bytes += bytes
		m.makeRoomLocked(r)
	}
}

// makeRoomLocked makes room for the answer of r. It forgets that very answer if it exceeds the
// bound alone, and otherwise the least recently used ones.
func (m *Memory[K, B, A]) makeRoomLocked(r *Request[K, B, A]) {
	if r.bytes > m.opt.Bytes {
		m.forgetLocked(r)
	}
	for m.bytes > m.opt.Bytes {
		m.forgetLocked(m.oldest(&m.answers))
	}
}

// State is the state of the answer to a request.
type State uint8

// The states.
const (
	// Answered: the answer is returned. It must not be modified.
	Answered State = iota
	// UnderWay: the request is still being carried out.
	UnderWay
	// Forgotten: the request was entered before, but its answer is forgotten.
	Forgotten
)

// AwaitAnswer returns the answer to a request. It waits for it for at most atMost.
func (m *Memory[K, B, A]) AwaitAnswer(
	r *Request[K, B, A], atMost time.Duration,
) (answer A, s State) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		select { // if both are ready, return the answer
		case <-r.done:
		default:
			return answer, UnderWay
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.forgotten {
		return answer, Forgotten
	}
	return r.answer, Answered
}

// Size returns the number of sequences remembered and the total bytes of the answers kept.
func (m *Memory[K, B, A]) Size() (sequences, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.last), m.bytes
}
