package modes

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/ring"
)

// Step does one step of a change, at the request of the node that changes the mode.
func (s *Switch) Step(ctx context.Context, q *Request) error {
	if err := s.stepMu.Lock(ctx); err != nil {
		return errChanging
	}
	defer s.stepMu.Unlock()
	c := change{q.By, q.Term}
	switch {
	case q.Phase == Abort:
		if s.prepared == c {
			s.resumeLocked()
		}
		return nil
	case q.Term <= s.term.Load().number:
		return nil // it is done, or out of date
	case q.Phase == Commit:
		return s.switchLocked(ctx, term{q.Mode, q.Term})
	case s.prepared != change{} && s.prepared != c:
		// The end of one change would be mistaken for the end of the other.
		return fmt.Errorf("%w: the mode is being changed by another node",
			twotier.ErrUnavailable)
	}
	if err := s.prepareLocked(ctx, c); err != nil {
		return err
	}
	prepare := s.prepares
	s.opt.Go(func(ctx context.Context) { s.resumeIfForgotten(ctx, prepare) })
	return nil
}

// switchLocked changes the mode of this node.
func (s *Switch) switchLocked(ctx context.Context, to term) error {
	if s.prepared.term != to.number || to.number == 0 { // it was away while the others prepared
		if err := s.prepareLocked(ctx, change{term: to.number}); err != nil {
			return err
		}
	}
	s.term.Store(&to)
	s.opt.Changed()
	s.opt.Ownership.DiscardSuspended()
	s.opt.Logger.Info("the mode has changed", "mode", to.mode)
	s.resumeLocked()
	if s.opt.Announce != nil {
		s.opt.Go(func(ctx context.Context) {
			if err := s.opt.Announce(ctx, to.tag()); err != nil {
				s.opt.Logger.Warn("could not announce the mode yet", "error", err)
			}
		})
	}
	return nil
}

// prepareLocked stops deciding and flushes everything to the store.
func (s *Switch) prepareLocked(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	s.prepared = c
	s.prepares++
	s.pause()
	s.opt.Ownership.Suspend()
	var err error
	for err == nil && (s.inFlight.Load() > 0 || !s.opt.Idle()) { // work under way or reserved
		retry.Pause(ctx, time.Millisecond)
		err = ctx.Err()
	}
	if err == nil {
		err = s.opt.Flush(ctx)
	}
	if err != nil {
		s.resumeLocked()
	}
	return err
}

// resumeLocked continues in the node's current mode.
func (s *Switch) resumeLocked() {
	s.prepared = change{}
	s.resume()
	if !s.InRedis() {
		s.opt.Ownership.Resume()
	}
	s.opt.Ownership.WakeWaiters()
}

// resumeIfForgotten continues in the old mode if this node does not learn the result of a change
// that it prepared for. A repeated change has the same term, so attempts are numbered to tell them
// apart.
func (s *Switch) resumeIfForgotten(ctx context.Context, prepare uint64) {
	retry.Pause(ctx, PreparedTime)
	if s.stepMu.Lock(ctx) != nil {
		return
	}
	defer s.stepMu.Unlock()
	if s.prepares == prepare && s.prepared.term > s.term.Load().number {
		s.opt.Logger.Warn("not told how a change of mode ended: continuing in the old mode", "mode",
			s.Mode())
		s.resumeLocked()
	}
}

// FollowMembers adopts the mode of a member with a later term, or of an older member with the same
// term and another mode. It does not block.
func (s *Switch) FollowMembers() {
	now := s.term.Load()
	latest := s.latestTerm(*now)
	if latest == *now || !s.opt.Switchable || s.following.Swap(true) {
		return
	}
	s.opt.Go(func(ctx context.Context) {
		defer s.following.Store(false)
		if s.stepMu.Lock(ctx) != nil {
			return
		}
		defer s.stepMu.Unlock()
		if *s.term.Load() != *now {
			return // it has changed: the next call looks again
		}
		if err := s.switchLocked(ctx, latest); err != nil {
			s.opt.Logger.Warn("can't change to the cluster's mode yet", "mode", latest.mode,
				"error", err)
		}
	})
}

// latestTerm returns the winning term among the ones that members announce.
func (s *Switch) latestTerm(now term) term {
	t := s.opt.Table()
	latest, born := now, s.opt.Self().Born
	for i := range t.Len() {
		if m := t.Member(i); isLater(m, latest, born) {
			latest, _ = parseTag(m.Tag)
			born = m.Born
		}
	}
	return latest
}

// isLater reports whether the term announced by a member wins over a term announced by a member
// born at born.
func isLater(m *ring.Member, than term, born int64) bool {
	t, ok := parseTag(m.Tag)
	return ok && (t.number > than.number ||
		t.number == than.number && t.mode != than.mode && m.Born < born)
}
