package topkeys

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// MaxSampled is how many keys a [Sample] tracks.
const MaxSampled = 4096

// longestName is the length of the longest key name plus some room, so that the name stays on the
// stack.
const longestName = 384

// Sample tracks the keys with the largest counts, in windows of the default ladder. When it is
// full, a new key replaces the one with the smallest count among a few.
type Sample struct {
	ladder *leaparray.Ladder

	mu     sync.Mutex
	slots  map[string]int // by name
	keys   []sampled
	totals []int64 // of the keys, in all; they fade while the sample is full
	hand   int     // the next slots that may be replaced
}

// sampled is a tracked key.
type sampled struct {
	name    string // as from Check.AppendName
	counter leaparray.Counter
}

// NewSample returns an empty sample.
func NewSample() *Sample {
	l, err := leaparray.NewLadder(0, leaparray.DefaultLevels()...)
	if err != nil {
		panic(err) // it depends on nothing
	}
	return &Sample{ladder: l, slots: map[string]int{}}
}

// Add records that a key was counted at a time in unix milliseconds. It ignores counts that are not
// positive, and bans and leases, which settlements count as well.
func (s *Sample) Add(check *twotier.Check, now int64) {
	if check.N <= 0 || check.Kind != twotier.EventCheck || twotier.IsImported(check.NS) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slotLocked(check)
	s.totals[slot] += check.N
	v := leaparray.View{Ladder: s.ladder, A: s.keys[slot].counter, Now: now}
	v.Put(&v.A, leaparray.Heap{}, v.Cell(now), check.N)
	s.keys[slot].counter = v.A
}

// slotLocked returns the slot of a key, which may replace another key.
func (s *Sample) slotLocked(check *twotier.Check) int {
	var b [longestName]byte
	name := check.AppendName(b[:0])
	slot, ok := s.slots[string(name)]
	if ok {
		return slot
	}
	if len(s.keys) < MaxSampled {
		slot = len(s.keys)
		s.keys, s.totals = append(s.keys, sampled{}), append(s.totals, 0)
	} else {
		slot = s.leastLocked()
		delete(s.slots, s.keys[slot].name)
	}
	s.keys[slot] = sampled{name: string(name)}
	s.slots[s.keys[slot].name], s.totals[slot] = slot, 0
	return slot
}

// choice is the number of keys from which the one to replace is chosen.
const choice = 8

// leastLocked returns the slot with the smallest total of the next few. Their totals share a cache
// line.
func (s *Sample) leastLocked() (least int) {
	least = s.hand
	for slot := s.hand; slot < s.hand+choice; slot++ {
		if s.totals[slot] < s.totals[least] {
			least = slot
		}
		s.totals[slot] -= s.totals[slot] / 8 // so that once hot keys give way
	}
	s.hand = (s.hand + choice) % MaxSampled
	return least
}

// Top returns up to n keys that begin with a prefix and have the largest counts over the window in
// milliseconds that ends now, largest first. A window longer than the ladder is an
// *twotier.InvalidError.
func (s *Sample) Top(prefix string, n int, window,
	now int64) (rows []twotier.KeyCount, err error) {
	if window < 1 || window > s.ladder.Span() {
		return nil, &twotier.InvalidError{Check: -1, Limit: -1, Field: "window",
			Detail: fmt.Sprintf("want 1ms to %v", time.Duration(s.ladder.Span())*time.Millisecond)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.keys {
		k := &s.keys[i]
		ns, key, _ := strings.Cut(k.name, "\x00")
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		e, ok := leaparray.View{Ladder: s.ladder, A: k.counter, Now: now}.Count(window, now, true)
		if ok && e.Count > 0 {
			rows = append(rows, twotier.KeyCount{NS: cmp.Or(ns, twotier.DefaultNamespace), Key: key,
				Count: e.Count})
		}
	}
	return Largest(rows, n), nil
}
