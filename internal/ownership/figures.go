package ownership

// Phases is how many partitions are in which state on one node; the others are none of its
// business.
type Phases struct {
	// Own is those that it decides about, Incoming those that are on their way to it.
	Own, Incoming int
	// Outgoing is those that it still decides about although the table gives them to another, Moving
	// those that are being handed over.
	Outgoing, Moving int
}

// Held is how many a node has, be it on the way to another.
func (p Phases) Held() int { return p.Own + p.Outgoing + p.Moving }

// Moves is how many partitions have changed hands, and how, since the node started.
type Moves struct {
	// Taken is those whose state another node handed to this one, Given the other way around.
	Taken, Given int64
	// Begun is those that this node began with what the store has, as nobody handed them over.
	Begun int64
	// LetGo is those that it gave up although nobody took them over in full, so that the next owner
	// begins with the store's state.
	LetGo int64
	// TakenBack is those that it kept in the end.
	TakenBack int64
}

// Held counts the partitions that this node has.
func (o *Partitions) Held() (count int) {
	at, _ := o.Figures()
	return at.Held()
}

// Figures returns how many partitions are in which phase, and what has been moved so far.
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

// Settled reports whether every partition that the table gives to this node is its own, and no
// other.
func (o *Partitions) Settled() bool {
	t := o.opt.Table()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return true
	}
	for p := range o.parts {
		phase, want := o.parts[p].phase, t.Mine(p)
		if want != (phase == own) || !want && phase != foreign {
			return false
		}
	}
	return true
}
