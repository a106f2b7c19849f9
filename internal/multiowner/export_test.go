package multiowner

import (
	"time"

	"twotier.dev/twotier/internal/rpc"
)

// Bounds.
const (
	MaxOutcomes  = maxOutcomes
	OutcomeTime  = outcomeTime
	RefusedTime  = refusedTime
	HeardTime    = heardTime
	ReserveLimit = reserveLimit
)

// Outcomes are a decider's outcomes of the acquires of one coordinator, "c".
type Outcomes struct{ o outcomes }

// ID returns the ID of an acquire of that coordinator.
func ID(number uint64) rpc.AcquireID { return rpc.AcquireID{Coordinator: "c", Number: number} }

// Decide decides an acquire.
func (o *Outcomes) Decide(number, settled uint64, counted bool) error {
	d, err := o.o.beginDecision(ID(number), settled, time.Now())
	if err == nil {
		o.o.endDecision(d, counted, time.Now())
	}
	return err
}

// Begin begins a decision, and returns the function that ends it.
func (o *Outcomes) Begin(number uint64) (end func(counted bool), err error) {
	d, err := o.o.beginDecision(ID(number), 0, time.Now())
	return func(counted bool) { o.o.endDecision(d, counted, time.Now()) }, err
}

// Fill simulates n more outcomes, of other coordinators.
func (o *Outcomes) Fill(n int) { o.o.size += n }

// Find asks for an outcome.
func (o *Outcomes) Find(number uint64) (Outcome, error) { return o.o.find(ID(number), time.Now()) }

// Age drops outcomes that are too old.
func (o *Outcomes) Age() { o.o.expire(time.Now()) }

// Len returns the number of remembered outcomes, Records the number of their coordinators.
func (o *Outcomes) Len() int     { return o.o.len() }
func (o *Outcomes) Records() int { return len(o.o.records) }

// len returns the number of remembered outcomes.
func (o *outcomes) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size
}

// Numbers are a coordinator's numbers.
type Numbers struct{ n numbers }

// Next returns the next number with a decider, and the lowest unsettled number with it.
func (n *Numbers) Next(decider string) (number, settled uint64) { return n.n.next(decider) }

// Settle settles a number.
func (n *Numbers) Settle(decider string, number uint64) { n.n.settle(decider, number) }

// Open returns the number of deciders with remembered numbers.
func (n *Numbers) Open() int { return len(n.n.open) }

// Outcomes returns the number of outcomes that a participant remembers.
func (p *Participant) Outcomes() int { return p.outcomes.len() }

// Verdicts returns the number of outcomes that a coordinator remembers for other owners.
func (p *Participant) Verdicts() int {
	p.coordinated.mu.Lock()
	defer p.coordinated.mu.Unlock()
	return len(p.coordinated.byNumber)
}

// Ended returns the number of endings that a participant remembers.
func (p *Participant) Ended() int {
	p.reservations.mu.Lock()
	defer p.reservations.mu.Unlock()
	return len(p.reservations.ended)
}
