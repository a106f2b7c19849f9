package ownership

// Phases is the number of partitions in each phase on one node. All other partitions are foreign.
type Phases struct {
	// Own are decided by this node. Incoming are on their way to this node.
	Own, Incoming int
	// Outgoing are still decided by this node although the table assigns them to another. Moving
	// are being handed over.
	Outgoing, Moving int
}

// HeldCount is the number of partitions whose state is on this node.
func (p Phases) HeldCount() int { return p.Own + p.Outgoing + p.Moving }

// Moves is the number of partitions that changed hands since the node started, by kind.
type Moves struct {
	// Taken received their state from another node; Given were sent to another node.
	Taken, Given int64
	// FromStore started from the state in the store because no node handed them over.
	FromStore int64
	// Abandoned were given up without a complete handover, so the next owner starts from the store.
	Abandoned int64
	// TakenBack were to be handed over but stayed.
	TakenBack int64
}

// HeldCount returns the number of partitions whose state is on this node.
func (o *Partitions) HeldCount() (count int) {
	at, _ := o.Figures()
	return at.HeldCount()
}

// Figures returns the number of partitions in each phase, and the number that have changed hands.
func (o *Partitions) Figures() (at Phases, moves Moves) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.parts {
		switch o.parts[p].phase {
		case own:
			at.Own++
		case incoming:
			at.Incoming++
		case outgoing:
			at.Outgoing++
		case moving, given:
			at.Moving++
		}
	}
	return at, o.moves
}

// IsSettled reports whether this node owns exactly the partitions that the table assigns to it.
func (o *Partitions) IsSettled() bool {
	t := o.opt.Table()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return true
	}
	for p := range o.parts {
		phase, want := o.parts[p].phase, t.OwnedBySelf(p)
		if want != (phase == own) || !want && phase != foreign {
			return false
		}
	}
	return true
}
