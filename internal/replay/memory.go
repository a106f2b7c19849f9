package replay

import (
	"container/list"
	"hash/maphash"
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

// Bounds of the memory for names: one mebibyte for each of two generations. With maxNames in a
// generation, one new name in some hundreds is mistaken for a known one.
const (
	nameBits    = 1 << 23
	nameProbes  = 4
	maxNames    = 600_000
	bitsPerWord = 64
	// fewNames is how many names a generation stores individually, in tens of kilobytes, before it
	// takes memory for maxNames.
	fewNames = 500
)

// names remembers each name for at least one generation. Beyond fewNames it is a Bloom filter, so
// it may mistake a new name for a known one, but never a known one for new. The hash has a random
// seed, so that no client can choose names that collide.
type names[K comparable] struct {
	keep     time.Duration // how long a generation is
	seed     maphash.Seed
	now, old generation
	since    time.Time // zero before the first generation
}

// add remembers a name. isNew reports whether the name is certainly new, room whether there is room
// for it. Without room, nothing is remembered.
func (n *names[K]) add(name K, now time.Time) (isNew, room bool) {
	if n.since.IsZero() || now.Sub(n.since) >= n.keep {
		n.rotate(now)
	}
	h := maphash.Comparable(n.seed, name)
	if n.now.has(h) || n.old.has(h) {
		return false, true
	}
	return true, n.now.add(h)
}

// rotate begins a generation. It remembers the names of the previous one for the length of another
// generation.
func (n *names[K]) rotate(now time.Time) {
	if n.since.IsZero() {
		n.seed = maphash.MakeSeed()
	}
	n.old, n.now, n.since = n.now, generation{}, now
}

// generation is a set of hashes.
type generation struct {
	few  map[uint64]struct{} // all of them, until there are too many
	bits []uint64            // a Bloom filter of all of them from then on
	n    int
}

// add adds a hash if there is room for it.
func (g *generation) add(h uint64) (room bool) {
	if g.n >= maxNames {
		return false
	}
	if g.n++; g.bits == nil && len(g.few) < fewNames {
		if g.few == nil {
			g.few = map[uint64]struct{}{}
		}
		g.few[h] = struct{}{}
		return true
	}
	if g.bits == nil {
		g.convertToFilter()
	}
	g.setBits(h)
	return true
}

func (g *generation) convertToFilter() {
	g.bits = make([]uint64, nameBits/bitsPerWord)
	for h := range g.few {
		g.setBits(h)
	}
	g.few = nil
}

func (g *generation) setBits(h uint64) {
	for i := range uint64(nameProbes) {
		at := probe(h, i)
		g.bits[at/bitsPerWord] |= 1 << (at % bitsPerWord)
	}
}

func (g *generation) has(h uint64) bool {
	if g.bits == nil {
		_, has := g.few[h]
		return has
	}
	for i := range uint64(nameProbes) {
		if at := probe(h, i); g.bits[at/bitsPerWord]&(1<<(at%bitsPerWord)) == 0 {
			return false
		}
	}
	return true
}

// probe returns the position of the bit for hash h and probe number i.
func probe(h, i uint64) uint64 { return (h + i*(h>>32|1)) % nameBits }
