package replay

import (
	"container/list"
	"sync"
	"time"
)

// Options configure a [Memory] whose requests are sent by somebody of type B. Sequences, Bytes,
// Answers and Numbers are required.
type Options[B any] struct {
	// Sequences is how many sequences are remembered, Bytes how large the answers to them may be.
	Sequences, Bytes int
	// Answers is for how long an answer is kept after its last use, and Numbers for how long the
	// number is, and at least the name of the sequence. Nobody sends a request again after that.
	Answers, Numbers time.Duration
	// FromOne says that the first request of every sequence has the number 1.
	FromOne bool
	// Continues reports whether somebody may go on with a sequence, or hear the answer to the last
	// request of it, which last has sent. Default: anybody may.
	Continues func(last, next B) bool
}

// Memory is the last request of each sequence and the answer to it. Sequences are named by keys of
// type K, requests are sent by somebody of type B, and answers are of type A. Make one with [New];
// its methods may be called at the same time.
type Memory[K comparable, B, A any] struct {
	opt Options[B]

	mu    sync.Mutex
	last  map[K]*Request[K, B, A]
	begun names[K] // also of those that were forgotten
	// The last requests by use, the latest in front: those whose answers are kept, or will be, and
	// those of which nothing but the number is.
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
	bytes     int // that are accounted for
	forgotten bool
}

// Verdict says what is to be done with a request.
type Verdict uint8

// The verdicts.
const (
	// Fresh: it is new. Who has entered it carries it out and calls Finish.
	Fresh Verdict = iota
	// Repeated: it was there before. Answer tells what came of it.
	Repeated
	// Stale: it may be a copy of one that was carried out, and nobody knows what came of that.
	Stale
	// Foreign: its sequence is somebody else's.
	Foreign
	// Full: there is no room for a further sequence.
	Full
)

// New returns an empty memory.
func New[K comparable, B, A any](opt Options[B]) *Memory[K, B, A] {
	return &Memory[K, B, A]{opt: opt, last: map[K]*Request[K, B, A]{},
		begun: names[K]{keep: opt.Numbers}}
}

// Enter says what is to be done with a request: unless it is Fresh it must not be carried out. It
// is returned if it is Fresh or Repeated.
func (m *Memory[K, B, A]) Enter(key K, seq uint64, by B,
	now time.Time) (r *Request[K, B, A], v Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ageLocked(now)
	last := m.last[key]
	switch {
	case last == nil:
		if v := m.beginLocked(key, seq, now); v != Fresh {
			return nil, v
		}
	case m.opt.Continues != nil && !m.opt.Continues(last.by, by):
		return nil, Foreign
	case seq <= last.seq:
		m.useLocked(last, now)
		if seq < last.seq {
			return nil, Stale
		}
		return last, Repeated
	}
	r = &Request[K, B, A]{key: key, seq: seq, by: by, used: now, done: make(chan struct{})}
	m.replaceLocked(last, r)
	return r, Fresh
}

// beginLocked decides whether a sequence that is not known may begin, and makes room for it.
func (m *Memory[K, B, A]) beginLocked(key K, seq uint64, now time.Time) Verdict {
	if m.opt.FromOne {
		if seq != 1 {
			return Stale
		}
		if isNew, room := m.begun.add(key, now); !isNew {
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

// replaceLocked has a request take the place of the last of its sequence, if there is one.
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

// useLocked notes that somebody asks for a request.
func (m *Memory[K, B, A]) useLocked(r *Request[K, B, A], now time.Time) {
	r.used = now
	if r.forgotten {
		m.numbers.MoveToFront(r.at)
	} else {
		m.answers.MoveToFront(r.at)
	}
}

// ageLocked forgets what was not used for long.
func (m *Memory[K, B, A]) ageLocked(now time.Time) {
	for r := m.oldest(&m.answers); r != nil && now.Sub(r.used) >= m.opt.Answers; {
		m.forgetLocked(r)
		r = m.oldest(&m.answers)
	}
	for r := m.oldest(&m.numbers); r != nil && now.Sub(r.used) >= m.opt.Numbers; {
		m.removeLocked(r)
		r = m.oldest(&m.numbers)
	}
}

// oldest returns the request of a list that was used least lately, nil if there is none.
func (m *Memory[K, B, A]) oldest(l *list.List) *Request[K, B, A] {
	if l.Len() == 0 {
		return nil
	}
	return l.Back().Value.(*Request[K, B, A])
}

// forgetLocked forgets the answer to a request, or that it will have one.
func (m *Memory[K, B, A]) forgetLocked(r *Request[K, B, A]) {
	var none A
	m.bytes -= r.bytes
	r.answer, r.bytes, r.forgotten = none, 0, true
	m.answers.Remove(r.at)
	r.at = m.numbers.PushFront(r)
}

// removeLocked forgets a sequence of which there is nothing but the number.
func (m *Memory[K, B, A]) removeLocked(r *Request[K, B, A]) {
	m.numbers.Remove(r.at)
	delete(m.last, r.key)
}

// Finish keeps the answer to a fresh request, which takes so many bytes, and tells all who wait for
// it. It is called once.
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
		m.fitLocked(r)
	}
}

// fitLocked forgets what there is no room for with the answer to a request: that one itself if it
// is larger than all may be, or else those used least lately.
func (m *Memory[K, B, A]) fitLocked(r *Request[K, B, A]) {
	if r.bytes > m.opt.Bytes {
		m.forgetLocked(r)
	}
	for m.bytes > m.opt.Bytes {
		m.forgetLocked(m.oldest(&m.answers))
	}
}

// State says what is known of a request.
type State uint8

// The states.
const (
	// Answered: here is the answer, which must not be changed.
	Answered State = iota
	// UnderWay: it is still being carried out.
	UnderWay
	// Forgotten: it was carried out, and the answer is forgotten.
	Forgotten
)

// Answer returns the answer to a request, which it waits for, but no longer than that.
func (m *Memory[K, B, A]) Answer(r *Request[K, B, A], atMost time.Duration) (answer A, s State) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		select { // both may be true: an answer that is there is told
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

// Size returns how many sequences are remembered, and the bytes of the answers that are kept.
func (m *Memory[K, B, A]) Size() (sequences, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.last), m.bytes
}
