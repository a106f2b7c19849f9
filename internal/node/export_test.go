package node

import "time"

// MaxOutcomes is how many decisions are remembered at the most.
const MaxOutcomes = maxOutcomes * outcomeGenerations

// Holds are the reservations of a node called self.
type Holds struct{ h holds }

// NewHolds returns a node's holds.
func NewHolds() *Holds {
	h := new(Holds)
	h.h.init()
	return h
}

// Add notes a reservation that decider decides about.
func (h *Holds) Add(id, decider string, now time.Time) { h.h.add(id, decider, now) }

// Confirm closes a reservation as confirmed, at the present time.
func (h *Holds) Confirm(id string) error { return h.h.close(id, "self", true) }

// Undo closes a reservation that is given up.
func (h *Holds) Undo(id string) error { return h.h.close(id, "self", false) }

// Settled notes that nobody will ask.
func (h *Holds) Settled(id string) { h.h.settled(id) }

// Outcome is what is remembered of a reservation.
func (h *Holds) Outcome(id string) (confirmed, decided bool) { return h.h.outcomes.find(id) }

// Overdue returns the names of the reservations whose time is up.
func (h *Holds) Overdue(now time.Time) (ids []string) {
	for _, o := range h.h.overdue(now) {
		ids = append(ids, o.id)
	}
	return ids
}

// Outcomes is how many decisions are remembered.
func (h *Holds) Outcomes() int { return h.h.outcomes.len() }
