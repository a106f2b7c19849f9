package multiowner

import (
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/syncer"
)

// reservations has the reservations that wait to be confirmed or undone, and the outcomes of
// others.
type reservations struct {
	mu       sync.Mutex
	open     map[string]*reservation
	due      []*reservation // made within reserveTime, open or not, in order
	outcomes outcomes
}

// reservation is a reservation that waits to be confirmed or undone.
type reservation struct {
	id, coordinator string
	since           time.Time
	closed          bool
}

func (r *reservations) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// add records a reservation.
func (r *reservations) add(id, coordinator string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &reservation{id: id, coordinator: coordinator, since: now}
	r.open[id] = o
	r.due = append(r.due, o)
}

// close removes an open reservation. If it is confirmed and self is the coordinator, close records
// the outcome. The error says why the reservation can't be confirmed: there is none, another node
// was told that it is not, or its outcome could not be recorded.
func (r *reservations) close(id, self string, confirmed bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.open[id]
	if o == nil {
		return fmt.Errorf("%w: no reservation %q", syncer.ErrUnavailable, id)
	}
	if confirmed && o.coordinator == self {
		if _, decided := r.outcomes.find(id); decided {
			return fmt.Errorf("%w: the reservation %q was given up", syncer.ErrUnavailable, id)
		}
		if !r.outcomes.add(id, true, time.Now()) {
			return errTooMany
		}
	}
	o.closed = true
	delete(r.open, id)
	return nil
}

// errTooMany says that there is no room to record another outcome.
var errTooMany = fmt.Errorf("%w: too many reservations are being decided", syncer.ErrOverload)

// outcome returns whether a reservation was confirmed. An undecided one can't be confirmed after
// this call. It may not even have been made yet.
func (r *reservations) outcome(id string, now time.Time) (confirmed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	confirmed, decided := r.outcomes.find(id)
	if !decided && !r.outcomes.add(id, false, now) {
		return false, errTooMany
	}
	return confirmed, nil
}

// settled records that nobody will ask for the outcome of a reservation.
func (r *reservations) settled(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes.forget(id)
}

// overdue returns reservations whose time is up, each once.
func (r *reservations) overdue(now time.Time) (late []*reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := 0
	for done < len(r.due) && elapsed.Between(r.due[done].since, now) > reserveTime {
		if o := r.due[done]; !o.closed {
			late = append(late, o)
		}
		done++
	}
	clear(r.due[:done])
	r.due = r.due[done:]
	return late
}
