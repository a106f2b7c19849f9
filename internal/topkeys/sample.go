package topkeys

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// MaxSampled is how many keys a [Sample] tracks.
const MaxSampled = 4096

// longestName is the length of the longest name of a key plus some room: it stays on the stack.
const longestName = 384

// Sample tracks the keys with the largest counts, in windows of the default ladder. When it is
// full, a new key replaces the one with the smallest count among a few.
type Sample struct {
	ladder *leaparray.Ladder

	mu   sync.Mutex
	keys map[string]*sampled
}

// sampled is a key that is tracked.
type sampled struct {
	ns, key string
	total   int64 // in all; fades while the sample is full
	counter leaparray.Counter
}

// NewSample returns an empty sample.
func NewSample() (*Sample, error) {
	l, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
	if err != nil {
		return nil, err
	}
	return &Sample{ladder: l, keys: map[string]*sampled{}}, nil
}

// Add records that a key was counted at a time in unix milliseconds. It ignores counts that are
// taken back.
func (s *Sample) Add(check *syncer.Check, now int64) {
	if check.N < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keyLocked(check)
	k.total += check.N
	stamp := s.ladder.Stamp(now)
	for level := range s.ladder.Len() {
		if _, ok := s.ladder.Add(k.counter, level, stamp[level], check.N); !ok {
			k.counter = s.ladder.Grow(k.counter, leaparray.Heap{}, level, stamp[level], check.N)
			s.ladder.Add(k.counter, level, stamp[level], check.N)
		}
	}
}

// keyLocked returns the state of a key, which may replace another one's.
func (s *Sample) keyLocked(check *syncer.Check) *sampled {
	var b [longestName]byte
	name := check.AppendName(b[:0])
	k := s.keys[string(name)]
	if k == nil {
		if len(s.keys) >= MaxSampled {
			s.makeRoomLocked()
		}
		ns := cmp.Or(string(check.NS), syncer.DefaultNamespace)
		k = &sampled{ns: ns, key: string(check.Key)}
		s.keys[string(name)] = k
	}
	return k
}

// makeRoomLocked drops the smallest of a few keys, which map iteration picks at random.
func (s *Sample) makeRoomLocked() {
	var least string
	seen := 0
	for name, k := range s.keys {
		if least == "" || k.total < s.keys[least].total {
			least = name
		}
		k.total -= k.total / 8 // so that what was hot long ago gives way
		if seen++; seen == 8 {
			break
		}
	}
	delete(s.keys, least)
}

// Top returns up to n keys with the largest counts over the window in milliseconds that ends now,
// largest first. A window that is longer than the ladder is an *syncer.InvalidError.
func (s *Sample) Top(n int, window, now int64) (rows []syncer.KeyCount, err error) {
	if window < 1 || window > s.ladder.Span() {
		return nil, &syncer.InvalidError{Check: -1, Limit: -1, Field: "window",
			Detail: fmt.Sprintf("want 1ms to %v", time.Duration(s.ladder.Span())*time.Millisecond)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		e, ok := leaparray.View{Ladder: s.ladder, A: k.counter}.Count(window, now, true)
		if ok && e.Count > 0 {
			rows = append(rows, syncer.KeyCount{NS: k.ns, Key: k.key, Count: e.Count})
		}
	}
	return Largest(rows, n), nil
}
