package holds

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
)

// Tally counts the holds that a node has made and settled, by namespace. A hold that one node makes
// may be settled by another one, so only sums over all nodes show how many are open, and how many
// have ended without being settled. The zero value is empty. It is safe for concurrent use.
type Tally struct {
	metrics.Unchecked

	// Now returns the time in unix milliseconds.
	Now func() int64

	mu     sync.Mutex
	spaces map[string]*spaceTally
}

// spaceTally counts the holds of a namespace.
type spaceTally struct {
	made, settled, expired int64
	// open has the holds made less those settled, by the second or minute in which they end.
	open map[int64]int64
}

const (
	// maxSpaces bounds the namespaces: their names come from clients.
	maxSpaces = 256
	// maxSlots bounds the slots of a namespace. Some 5,000 lie ahead at most.
	maxSlots = 8192
)

// slot returns the end of a hold with less precision if it is far away, so that there are few.
func slot(until, now int64) int64 {
	width := int64(1000)
	if until-now > 3_600_000 {
		width = 60_000
	}
	return (until + width - 1) / width * width
}

// Move counts a hold on a key of a namespace whose end moves from one time to another. A hold that
// is made has no end before, and a hold that is settled none afterwards: 0.
func (t *Tally) Move(ns string, from, until int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.spaces[ns]
	if s == nil {
		if len(t.spaces) >= maxSpaces {
			return
		}
		if t.spaces == nil {
			t.spaces = map[string]*spaceTally{}
		}
		s = &spaceTally{open: map[int64]int64{}}
		t.spaces[ns] = s
	}
	now := t.Now()
	if from == 0 {
		s.made++
	} else {
		s.open[slot(from, now)]--
	}
	if until == 0 {
		s.settled++
	} else {
		s.open[slot(until, now)]++
	}
	if len(s.open) > maxSlots {
		s.expire(now)
	}
}

// expire counts the holds that have ended as expired, and returns how many are open.
func (s *spaceTally) expire(now int64) (open int64) {
	for end, n := range s.open {
		if end <= now {
			s.expired += n
			delete(s.open, end)
		} else {
			open += n
		}
	}
	return open
}

// Collect implements [prometheus.Collector].
func (t *Tally) Collect(ch chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := metrics.Sink(ch)
	made := to.Totals("twotier_holds_made_total", "Holds on keys, by namespace.", "ns")
	settled := to.Totals("twotier_holds_settled_total",
		"Settlements of holds on keys, by namespace.", "ns")
	expired := to.Gauges("twotier_holds_expired",
		"Holds on keys that have ended without a settlement: the sum over all nodes.", "ns")
	opened := to.Gauges("twotier_holds_open",
		"Holds on keys that can be settled: the sum over all nodes.", "ns")
	now := t.Now()
	for ns, s := range t.spaces {
		open := s.expire(now)
		made(s.made, ns)
		settled(s.settled, ns)
		expired(s.expired, ns)
		opened(open, ns)
	}
}
