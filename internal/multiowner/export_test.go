package multiowner

import "time"

// MaxOutcomes is the maximum number of decisions that are remembered.
const MaxOutcomes = maxOutcomes * outcomeGenerations

// Reservations are the reservations of a node called self.
type Reservations struct{ r reservations }

// NewReservations returns a node's reservations.
func NewReservations() *Reservations {
	return &Reservations{reservations{open: map[string]*reservation{}}}
}

// Add records a reservation with that coordinator.
func (r *Reservations) Add(id, coordinator string, now time.Time) { r.r.add(id, coordinator, now) }

// Confirm closes a reservation as confirmed, now.
func (r *Reservations) Confirm(id string) error { return r.r.close(id, "self", true) }

// Undo closes a reservation that is given up.
func (r *Reservations) Undo(id string) error { return r.r.close(id, "self", false) }

// Settled records that nobody will ask about a reservation.
func (r *Reservations) Settled(id string) { r.r.settled(id) }

// Outcome returns what is remembered about a reservation.
func (r *Reservations) Outcome(id string) (confirmed, decided bool) { return r.r.outcomes.find(id) }

// Overdue returns the names of the reservations whose time is up.
func (r *Reservations) Overdue(now time.Time) (ids []string) {
	for _, o := range r.r.overdue(now) {
		ids = append(ids, o.id)
	}
	return ids
}

// Outcomes returns how many decisions are remembered.
func (r *Reservations) Outcomes() int { return r.r.outcomes.len() }
