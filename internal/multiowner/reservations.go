package multiowner

import (
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/rpc"
)

// reservations has the reservations that wait to be confirmed or undone.
type reservations struct {
	mu   sync.Mutex
	open map[rpc.AcquireID]*reservation
	due  []*reservation       // made within reserveTime for other nodes, open or not, in order
	left map[string]time.Time // members that decide nothing any more, and since when
}

// reservation is a reservation that waits to be confirmed or undone.
type reservation struct {
	id      rpc.AcquireID
	decider string // name of the member that knows what becomes of it
	since   time.Time
	closed  bool
	// abandoned says that the coordinator itself asks, because it does not know the outcome.
	abandoned bool
}

func (r *reservations) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// add records a reservation. It becomes overdue only if it was made for another node. It reports
// false if the decider is leaving, which would neither decide nor answer any more.
func (r *reservations) add(o *reservation, self string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, left := r.left[o.decider]; left {
		return false
	}
	if r.open == nil {
		r.open = map[rpc.AcquireID]*reservation{}
	}
	r.open[o.id] = o
	if o.id.Coordinator != self {
		r.due = append(r.due, o)
	}
	return true
}

// close removes an open reservation. It reports false if there is none.
func (r *reservations) close(id rpc.AcquireID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.open[id]
	if o == nil {
		return false
	}
	o.closed = true
	delete(r.open, id)
	return true
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

// leave returns the open reservations that depend on a member that is leaving, and lets no others
// be made.
func (r *reservations) leave(decider string, now time.Time) (list []*reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[string]time.Time{}
	}
	for name, at := range r.left {
		if elapsed.Between(at, now) > recordTime {
			delete(r.left, name)
		}
	}
	r.left[decider] = now
	for _, o := range r.open {
		if o.decider == decider {
			list = append(list, o)
		}
	}
	return list
}
