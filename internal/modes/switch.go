package modes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// How long a change may take.
const (
	prepareTimeout = 5 * time.Second
	commitTimeout  = 2 * time.Second
	// PreparedTime is how long a node that has prepared for a change waits for its result. Then it
	// continues in the old mode.
	PreparedTime = prepareTimeout + commitTimeout
)

// Ownership is a node's right to decide. A change of mode suspends and resumes it.
type Ownership interface {
	// Suspend ends all decisions, but remembers the partitions that the node decided about.
	Suspend()
	// DiscardSuspended forgets the remembered partitions, because everything is in the store and no
	// longer this node's.
	DiscardSuspended()
	// Resume lets the node decide again: at once about the remembered partitions, and about the
	// rest according to the table.
	Resume()
	// WakeWaiters makes operations that wait for a decision check again.
	WakeWaiters()
}

// Options configure a [Switch]. All but Announce, StoreUp, Changed and Logger are required.
type Options struct {
	// Mode is the initial mode.
	Mode Mode
	// Switchable means that the node can count in both modes.
	Switchable bool
	// Table returns the members of the cluster, Self this one.
	Table func() *ring.Table
	Self  func() ring.Member
	Peers rpc.Asker
	// Announce gossips this node's tag to the other nodes. Nil if there are none.
	Announce  func(ctx context.Context, tag string) error
	Ownership Ownership
	// Idle reports whether no reservations are left, once no new ones are possible.
	Idle func() bool
	// Changed is called after each change of this node's mode, before operations go on. Default:
	// none.
	Changed func()
	// Flush returns once all counts are in the store.
	Flush func(ctx context.Context) error
	// StoreUp reports whether the store answered last. Default: it did.
	StoreUp func() bool
	// Go runs fn in the background; fn's context is done when the node closes.
	Go func(fn func(ctx context.Context))
	// Logger receives changes. Default: none.
	Logger *slog.Logger
}

// Switch is a node's mode, and its part in changing it.
type Switch struct {
	opt       Options
	term      atomic.Pointer[term]
	paused    atomic.Bool  // nothing is decided
	inFlight  atomic.Int64 // operations under way that no owner decides about
	following atomic.Bool  // the other nodes' mode is being adopted
	changing  sync.Mutex   // held by Change

	stepMu   mutex  // held during a step of a change
	prepared change // the change this node has prepared for; guarded by stepMu
	prepares uint64 // number of prepare steps so far; guarded by stepMu

	resumedMu sync.Mutex
	resumed   chan struct{} // closed while nothing is paused
}

// change identifies a change that a node has prepared for by its initiator and its term. Two
// administrators may start changes of the same term at the same time.
type change struct {
	by   string
	term uint64
}

// New returns a switch in the mode of its options.
func New(opt Options) *Switch {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if opt.StoreUp == nil {
		opt.StoreUp = func() bool { return true }
	}
	if opt.Changed == nil {
		opt.Changed = func() {}
	}
	s := &Switch{opt: opt, stepMu: make(mutex, 1), resumed: make(chan struct{})}
	close(s.resumed)
	s.term.Store(&term{mode: opt.Mode})
	return s
}

// Mode returns the mode that this node counts in.
func (s *Switch) Mode() Mode { return s.term.Load().mode }

// InRedis reports whether the mode is [Redis].
func (s *Switch) InRedis() bool { return s.Mode() == Redis }

// errChanging means that another change is under way.
var errChanging = fmt.Errorf("%w: the mode is being changed", twotier.ErrUnavailable)

// Change changes the mode of the whole cluster. Operations wait meanwhile. If a node can't be
// reached, or can't flush everything to Redis in time, nothing changes, and the error reports the
// reason. An unknown mode, or one that this node can't count in, is an *twotier.InvalidError; while
// another change is in progress the error wraps twotier.ErrUnavailable.
func (s *Switch) Change(ctx context.Context, mode Mode) error {
	if err := s.checkMode(mode); err != nil {
		return err
	}
	if !s.changing.TryLock() {
		return errChanging
	}
	defer s.changing.Unlock()
	now := s.term.Load()
	if now.mode == mode {
		return nil
	}
	if mode == Redis && !s.opt.StoreUp() {
		return fmt.Errorf("%w: the mode stays %s: Redis can't be reached; nothing was stopped",
			twotier.ErrUnavailable, s.Mode())
	}
	q := Request{By: s.opt.Self().Name, Mode: mode, Term: now.number + 1, Phase: Prepare}
	ctx, cancel := context.WithTimeout(ctx, PreparedTime)
	defer cancel()
	err := s.prepare(ctx, q)
	if err != nil {
		q.Phase = Abort
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		return errors.Join(fmt.Errorf("the mode stays %s: %w", s.Mode(), err),
			s.sendToAll(undo, s.opt.Table(), q))
	}
	q.Phase = Commit
	if err := s.sendToAll(ctx, s.opt.Table(), q); err != nil {
		s.opt.Logger.Warn("a node could not be told that the mode has changed; it will learn "+
			"it by gossip", "error", err)
	}
	return nil
}

func (s *Switch) checkMode(mode Mode) error {
	detail := ""
	switch {
	case mode != TwoTier && mode != Redis:
		detail = fmt.Sprintf("%q, want %q or %q", mode, TwoTier, Redis)
	case !s.opt.Switchable:
		detail = "this node can't be switched: it has no Redis"
	default:
		return nil
	}
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: "mode", Detail: detail}
}

// prepare has all nodes prepare, this one last, and then the nodes that have appeared in the table
// meanwhile. A node that is left out would go on deciding while the others count in Redis. Prepared
// nodes hand nothing over, so a node that joins later has nothing to decide about.
func (s *Switch) prepare(ctx context.Context, q Request) error {
	told := s.opt.Table()
	err := s.sendToAll(ctx, told, q)
	for t := s.opt.Table(); err == nil; t = s.opt.Table() {
		var late []ring.Member
		for i := range t.Len() {
			if m := t.Member(i); i != t.Self() && told.Find(m.Name) < 0 {
				late = append(late, *m)
			}
		}
		if len(late) == 0 {
			return nil
		}
		told = t
		for i := range late {
			err = errors.Join(err, s.sendTo(ctx, &late[i], q))
		}
	}
	return err
}

// sendToAll sends a step of a change to all nodes, including this one.
func (s *Switch) sendToAll(ctx context.Context, t *ring.Table, q Request) error {
	errs := make([]error, t.Len()+1)
	rpc.Broadcast(ctx, t, prepareTimeout, func(ctx context.Context, m *ring.Member) {
		errs[t.Find(m.Name)] = s.sendTo(ctx, m, q)
	})
	errs[t.Len()] = s.Step(ctx, &q)
	return errors.Join(errs...)
}

func (s *Switch) sendTo(ctx context.Context, m *ring.Member, q Request) error {
	return s.opt.Peers.Ask(ctx, m, &q, nil)
}

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
