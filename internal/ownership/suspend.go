package ownership

// Suspend ends all decisions of this node: every partition is foreign. Operations wait until Resume
// is called, or the mode has changed. What the node decided about is kept in mind.
func (o *Partitions) Suspend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspended = true
	for p := range o.parts {
		s := &o.parts[p]
		s.kept = s.kept || s.phase == own || s.phase == outgoing || s.phase == moving
		o.opt.Counter.StopOwning(p)
		o.enterLocked(p, foreign)
	}
}

// Forget forgets what Suspend kept in mind: all of it is in the store, and the mode has changed, so
// nothing is this node's before another's any more.
func (o *Partitions) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.parts {
		o.parts[p].kept = false
	}
}

// Resume has the node decide about what is its by the table, once nobody else does, and at once
// about what Suspend kept in mind: it may have counts that nobody else knows.
func (o *Partitions) Resume() {
	o.mu.Lock()
	o.suspended = false
	for p := range o.parts {
		if s := &o.parts[p]; s.kept {
			s.kept = false
			o.opt.Counter.StartOwning(p)
			o.enterLocked(p, own)
		}
	}
	o.mu.Unlock()
	o.Follow()
}

// Wake has all who wait look again.
func (o *Partitions) Wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

func (o *Partitions) isSuspended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.suspended
}
