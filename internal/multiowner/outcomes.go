package multiowner

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"twotier.dev/twotier/internal/elapsed"
)

// How long outcomes of reservations are remembered. An owner that has reserved something asks
// within reserveLimit, and a request takes reserveTime at the most. A whole generation is forgotten
// at once, so that this costs the same however much has been decided.
const (
	outcomeAge         = 4 * time.Second
	outcomeGenerations = 4
	// maxOutcomes bounds a generation. When it is full, no decision is made that other owners might
	// ask for.
	maxOutcomes = 1 << 17
)

// outcomes remembers how this node decided about reservations.
type outcomes struct {
	since time.Time
	// confirmed has an entry for each reservation that was confirmed (true), or that other owners
	// were told is not (false). There is one map per generation, the current one first.
	confirmed [outcomeGenerations]map[outcomeKey]bool
}

// outcomeKey is a hash of a reservation's name, which is random and longer.
type outcomeKey [2]uint64

func keyOf(id string) outcomeKey {
	d := xxhash.NewWithSeed(1)
	_, _ = d.WriteString(id) // never fails
	return outcomeKey{xxhash.Sum64String(id), d.Sum64()}
}

// find returns the decision, if there is one.
func (o *outcomes) find(id string) (confirmed, decided bool) {
	key := keyOf(id)
	for _, g := range &o.confirmed {
		if confirmed, decided = g[key]; decided {
			return confirmed, true
		}
	}
	return false, false
}

// add records a decision. It reports false if there is no room.
func (o *outcomes) add(id string, confirmed bool, now time.Time) bool {
	o.age(now)
	if len(o.confirmed[0]) >= maxOutcomes {
		return false
	}
	o.confirmed[0][keyOf(id)] = confirmed
	return true
}

// forget drops a decision that nobody will ask for.
func (o *outcomes) forget(id string) {
	key := keyOf(id)
	for _, g := range &o.confirmed {
		delete(g, key)
	}
}

// age begins a new generation when it is time, and drops the oldest.
func (o *outcomes) age(now time.Time) {
	if o.confirmed[0] != nil && elapsed.Between(o.since, now) < outcomeAge {
		return
	}
	copy(o.confirmed[1:], o.confirmed[:])
	o.confirmed[0] = make(map[outcomeKey]bool)
	o.since = now
}

// len returns how many decisions are remembered.
func (o *outcomes) len() (n int) {
	for _, g := range &o.confirmed {
		n += len(g)
	}
	return n
}
