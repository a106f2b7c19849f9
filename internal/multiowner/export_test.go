package multiowner

// Bounds.
const (
	RefusedTime  = refusedTime
	HeardTime    = heardTime
	ReserveLimit = reserveLimit
)

// Outcomes returns the number of outcomes that a participant remembers.
func (p *Participant) Outcomes() int {
	p.outcomes.mu.Lock()
	defer p.outcomes.mu.Unlock()
	return p.outcomes.size
}

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
