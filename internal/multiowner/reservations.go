package multiowner

import (
	"maps"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/rpc"
)

// reservations holds the reservations that wait to be confirmed or undone.
type reservations struct {
	mu   sync.Mutex
	open map[rpc.AcquireID]*reservation
	gone map[string]departure // members that decide nothing any more
	// ended holds the endings to report to an undo, or to a reservation that arrives after its
	// undo.
	ended map[rpc.AcquireID]ending
}

// departure describes a member that decides nothing any more.
type departure struct {
	at      time.Time
	decided map[string]Decided // by coordinator; nil if the member did not report
}

// ending is the end of a reservation that its coordinator may believe to be in another state.
type ending struct {
	at time.Time
	// counted marks a reservation that was counted in doubt. Otherwise it was undone before it was
	// made.
	counted bool
	// doubt is what was counted, until it is known whether the acquire was carried out.
	doubt *twotier.Op
}

// maxEnded bounds the remembered endings. There are some only after nodes could not reach each
// other.
const maxEnded = 2 * maxReservations

// reservation is a reservation that waits to be confirmed or undone.
type reservation struct {
	op      twotier.Op // is counted once it is confirmed
	id      rpc.AcquireID
	decider string // name of the member that decides about it
	since   time.Time
	// settling means that this node asks for its outcome, or that its coordinator runs on this node
	// and will settle it.
	settling bool
	// abandoned means that the coordinator itself asks, because it does not know the outcome.
	abandoned bool
}

func (r *reservations) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// add records a reservation. add refuses a reservation whose decider is leaving, because that node
// would neither decide nor answer any more, and a reservation that was undone meanwhile.
func (r *reservations) add(o *reservation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, gone := r.gone[o.decider]; gone {
		return errLeaving
	}
	if _, undone := r.ended[o.id]; undone {
		return errGivenUp
	}
	r.open[o.id] = o
	return nil
}

// close removes and returns an open reservation, or returns nil if there is none.
func (r *reservations) close(id rpc.AcquireID) *reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closeLocked(id)
}

// closeInDoubt is close for a reservation that is counted in doubt.
func (r *reservations) closeInDoubt(id rpc.AcquireID, now time.Time) *reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := r.closeLocked(id)
	if open != nil {
		r.endLocked(id, ending{at: now, counted: true, doubt: &open.op})
	}
	return open
}

// endDoubt returns what an acquire in doubt has counted, once: now its outcome is known. It returns
// nil if there is nothing.
func (r *reservations) endDoubt(id rpc.AcquireID) *twotier.Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.ended[id]
	d := e.doubt
	if known && d != nil {
		e.doubt = nil
		r.ended[id] = e
	}
	return d
}

// giveUp removes and returns a reservation that is undone. If there is none, it refuses it if it
// arrives later. counted is true if it was counted in doubt, and only for the first call.
func (r *reservations) giveUp(id rpc.AcquireID, now time.Time) (open *reservation, counted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open = r.closeLocked(id); open == nil {
		e := r.ended[id]
		counted = e.counted
		r.endLocked(id, ending{at: now, doubt: e.doubt})
	}
	return open, counted
}

func (r *reservations) endLocked(id rpc.AcquireID, e ending) {
	if _, known := r.ended[id]; known || len(r.ended) < maxEnded {
		r.ended[id] = e
	}
}

// expire forgets endings that no message can refer to any more.
func (r *reservations) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.ended, func(_ rpc.AcquireID, e ending) bool {
		return elapsed.Between(e.at, now) > refusedTime &&
			(e.doubt == nil || elapsed.Between(e.at, now) > doubtTime)
	})
}

func (r *reservations) closeLocked(id rpc.AcquireID) *reservation {
	o := r.open[id]
	delete(r.open, id)
	return o
}

// takeOverdue returns reservations whose time is up, each of them once.
func (r *reservations) takeOverdue(now time.Time) (late []*reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.open {
		if !o.settling && elapsed.Between(o.since, now) > reserveTime {
			o.settling = true
			late = append(late, o)
		}
	}
	return late
}

// beginDeparture returns the open reservations that depend on a leaving member, and refuses further
// ones.
func (r *reservations) beginDeparture(q *SettleRequest, now time.Time) (list []*reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.gone, func(_ string, d departure) bool {
		return elapsed.Between(d.at, now) > recordTime
	})
	r.gone[q.Decider] = departure{now, q.Decided}
	for _, o := range r.open {
		if o.decider == q.Decider {
			list = append(list, o)
		}
	}
	return list
}

// departedOutcome returns the outcome of an acquire that a member announced when it left, or
// Undecided.
func (r *reservations) departedOutcome(decider string, id rpc.AcquireID) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.gone[decider].decided
	if all == nil {
		return Undecided
	}
	d := all[id.Coordinator]
	return d.outcome(id.Number)
}

// inDoubt returns the number of acquires counted with their outcome still unknown.
func (r *reservations) inDoubt() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ended {
		if e.doubt != nil {
			n++
		}
	}
	return n
}
