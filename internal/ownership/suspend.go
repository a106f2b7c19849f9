package ownership

import "time"

// Suspend ends all decisions of this node. Operations wait until Resume is called or the mode has
// changed. The node remembers the partitions that it decided about. Given partitions stay given:
// only the receiving node knows whether it has everything, and the content may exist nowhere else.
func (o *Partitions) Suspend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspended = true
	o.opt.Counter.SetBorrowingPaused(true)
	for p := range o.parts {
		s := &o.parts[p]
		o.opt.Counter.StopOwning(p) // pending counts have to be flushed
		if s.phase == given {
			s.paused = true
			continue
		}
		s.kept = s.kept || s.phase == own || s.phase == outgoing || s.phase == moving
		o.enterLocked(p, foreign)
	}
}

// DiscardSuspended forgets what Suspend remembered: the mode has changed and everything is in the
// store, so this node no longer takes precedence over others.
func (o *Partitions) DiscardSuspended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.parts {
		s := &o.parts[p]
		if s.kept = false; s.phase == given {
			o.enterLocked(p, foreign)
		}
	}
	o.opt.Counter.ForgetLoans()
}

// Resume makes the node decide again. It does so at once for the partitions that Suspend
// remembered, because this node may hold counts that exist nowhere else. For other partitions that
// the table assigns to the node, it waits until no other node decides.
func (o *Partitions) Resume() {
	o.mu.Lock()
	o.suspended = false
	o.opt.Counter.SetBorrowingPaused(false)
	for p := range o.parts {
		switch s := &o.parts[p]; {
		case s.kept:
			s.kept = false
			o.opt.Counter.StartOwning(p)
			o.enterLocked(p, own)
		case s.phase == given:
			o.opt.Counter.RestartHandoff(p)
			s.since = time.Now() // nobody could take it over meanwhile
		}
	}
	o.mu.Unlock()
	o.FollowTable()
}

// WakeWaiters makes all waiters check their condition again.
func (o *Partitions) WakeWaiters() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

func (o *Partitions) isSuspended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.suspended
}
