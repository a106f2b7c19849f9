package multiowner

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/rpc"
)

// Outcome is the state of an acquire at its decider.
type Outcome uint8

// The outcomes.
const (
	// NotCarriedOut: it was refused, or has not reached the decider, which will refuse it.
	NotCarriedOut Outcome = iota
	// CarriedOut: the decider has counted its part.
	CarriedOut
	// Undecided: the decision is in progress.
	Undecided
	// Forgotten: it is so old that the decider may have forgotten it.
	Forgotten
)

// How long outcomes are remembered, and how many.
const (
	// outcomeTime is how long a carried out acquire is remembered unless its coordinator reports it
	// as settled. Owners with reservations may stand still meanwhile.
	outcomeTime = doubtTime
	// refusedTime is how long an acquire is refused after a question about it that came before it.
	// No message between nodes arrives later than this after it was sent.
	refusedTime = 2 * time.Minute
	// recordTime is how long a coordinator is remembered after its last acquire.
	recordTime = time.Hour
	// maxOutcomes bounds the remembered outcomes. When it is reached, this node makes no decision
	// that other owners might ask about.
	maxOutcomes = 1 << 19
)

// outcomes holds this node's decisions as the last of several owners.
type outcomes struct {
	mu      sync.Mutex
	records map[string]*record // by coordinator
	size    int                // decisions and refused numbers in all records
	leaving bool               // no more decisions are made
}

// record holds the decisions about the acquires of one coordinator.
type record struct {
	settled   uint64      // lower numbers are settled
	forgotten uint64      // decisions up to this number may have been forgotten
	decisions []*decision // in order of arrival
	refused   map[uint64]time.Time
	used      time.Time
}

// decision is a decision that other owners may ask about.
type decision struct {
	number  uint64
	outcome Outcome
	at      time.Time
}

var (
	// errTooMany means that there is no room to remember another outcome.
	errTooMany = fmt.Errorf("%w: too many acquires over several nodes are being decided",
		twotier.ErrOverload)
	// errGivenUp refuses an acquire that was reported to another owner as not carried out. It may
	// be tried again, under another number.
	errGivenUp = fmt.Errorf("%w: the acquire was abandoned", twotier.ErrNotOwner)
	// errLeaving refuses acquires whose decider is about to stop. The owners of its keys will
	// change.
	errLeaving = fmt.Errorf("%w: the node that decides is leaving", twotier.ErrNotOwner)
)

// stopDeciding ends deciding. Other nodes can still ask for outcomes.
func (o *outcomes) stopDeciding() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leaving = true
}

// beginDecision records that an acquire is about to be decided, unless it was given up. settled is
// the number reported by its coordinator, see rpc.Task.
func (o *outcomes) beginDecision(
	id rpc.AcquireID, settled uint64, now time.Time,
) (*decision, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leaving {
		return nil, errLeaving
	}
	r := o.coordinatorRecord(id.Coordinator, now)
	r.settled = max(r.settled, settled)
	o.trim(r, now)
	if _, refused := r.refused[id.Number]; refused || id.Number < r.settled {
		return nil, errGivenUp
	}
	if o.size >= maxOutcomes {
		return nil, errTooMany
	}
	d := &decision{number: id.Number, outcome: Undecided, at: now}
	r.decisions = append(r.decisions, d)
	o.size++
	return d, nil
}

// endDecision records a decision that was begun.
func (o *outcomes) endDecision(d *decision, counted bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d.outcome, d.at = NotCarriedOut, now
	if counted {
		d.outcome = CarriedOut
	}
}

// find returns the outcome of an acquire. An acquire that has not arrived yet will be refused.
func (o *outcomes) find(id rpc.AcquireID, now time.Time) (Outcome, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.coordinatorRecord(id.Coordinator, now)
	for _, d := range r.decisions {
		if d.number == id.Number {
			return d.outcome, nil
		}
	}
	_, refused := r.refused[id.Number]
	switch {
	case refused:
		return NotCarriedOut, nil
	case id.Number < r.settled, id.Number <= r.forgotten:
		return Forgotten, nil // the coordinator knows outcomes that did not reach all owners
	case o.size >= maxOutcomes:
		return Undecided, errTooMany
	}
	r.refused[id.Number] = now
	o.size++
	return NotCarriedOut, nil
}

// Decided holds the decisions of a leaving member for one coordinator.
type Decided struct {
	// CarriedOut are the acquires of which the member has counted its part, and Undecided the ones
	// in progress, in order.
	CarriedOut, Undecided []uint64
	// Unknown is the last acquire that the member may have forgotten. Later acquires in neither
	// list are not carried out.
	Unknown uint64
}

// maxDecided bounds the acquires in the report of a leaving member. If there are more, nodes ask
// it.
const maxDecided = 1 << 16

// leavingDecisions returns all decisions, once stopDeciding was called, or nil if there are too
// many.
func (o *outcomes) leavingDecisions() map[string]Decided {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, size := make(map[string]Decided, len(o.records)), 0
	for coordinator, r := range o.records {
		d := Decided{Unknown: max(r.settled, r.forgotten+1) - 1}
		for _, one := range r.decisions {
			switch one.outcome {
			case CarriedOut:
				d.CarriedOut = append(d.CarriedOut, one.number)
			case Undecided:
				d.Undecided = append(d.Undecided, one.number)
			}
		}
		slices.Sort(d.CarriedOut)
		slices.Sort(d.Undecided)
		all[coordinator] = d
		if size += len(d.CarriedOut) + len(d.Undecided); size > maxDecided {
			return nil
		}
	}
	return all
}

// isDeciding reports whether a decision is still in progress.
func (o *outcomes) isDeciding() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.records {
		if slices.ContainsFunc(r.decisions, func(d *decision) bool {
			return d.outcome == Undecided
		}) {
			return true
		}
	}
	return false
}

// outcome returns the outcome of an acquire. For Forgotten and Undecided, other nodes have to be
// asked.
func (d *Decided) outcome(number uint64) Outcome {
	if _, found := slices.BinarySearch(d.CarriedOut, number); found {
		return CarriedOut
	}
	_, found := slices.BinarySearch(d.Undecided, number)
	switch {
	case found:
		return Undecided
	case number <= d.Unknown:
		return Forgotten
	}
	return NotCarriedOut
}

func (o *outcomes) coordinatorRecord(coordinator string, now time.Time) *record {
	r := o.records[coordinator]
	if r == nil {
		r = &record{refused: map[uint64]time.Time{}}
		o.records[coordinator] = r
	}
	r.used = now
	return r
}

// trim drops decisions that no node will ask about, from the front.
func (o *outcomes) trim(r *record, now time.Time) {
	done := 0
	for _, d := range r.decisions {
		old := elapsed.Between(d.at, now) > outcomeTime
		if d.outcome == Undecided || d.outcome == CarriedOut && d.number >= r.settled && !old {
			break
		}
		if d.outcome == CarriedOut && d.number >= r.settled {
			r.forgotten = max(r.forgotten, d.number)
		}
		done++
	}
	clear(r.decisions[:done])
	r.decisions = r.decisions[done:]
	o.size -= done
}

// expire drops decisions, refusals and records that are too old.
func (o *outcomes) expire(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, r := range o.records {
		o.trim(r, now)
		for number, at := range r.refused {
			if elapsed.Between(at, now) > refusedTime {
				delete(r.refused, number)
				o.size--
			}
		}
		if len(r.decisions)+len(r.refused) == 0 && elapsed.Between(r.used, now) > recordTime {
			delete(o.records, name)
		}
	}
}
