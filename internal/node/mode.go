package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"twotier/internal/retry"
	"twotier/internal/rpc"
	"twotier/ring"
	"twotier/syncer"
)

// modeTurn is a mode and how many times the cluster has changed it: of two, the later one holds.
type modeTurn struct {
	mode Mode
	turn uint64
}

// How long a change of mode may take.
const (
	prepareTimeout = 5 * time.Second
	commitTimeout  = 2 * time.Second
	// preparedTime is how long a node waits to hear how a change ends that it was told to prepare for.
	preparedTime = prepareTimeout + commitTimeout
)

// modeChange is a change that a node is prepared for: who asked for it, and its number. Two administrators may ask for one of the same
// number at the same time.
type modeChange struct {
	by   string
	turn uint64
}

func (m *modeTurn) tag() string { return string(m.mode) + " " + strconv.FormatUint(m.turn, 10) }

// Tag is what a node in this mode is to say about itself in the ring when it starts.
func Tag(mode Mode) string { return (&modeTurn{mode: mode}).tag() }

// parseTag is the inverse of tag.
func parseTag(tag string) (m modeTurn, ok bool) {
	mode, turn, found := strings.Cut(tag, " ")
	n, err := strconv.ParseUint(turn, 10, 64)
	m = modeTurn{Mode(mode), n}
	return m, found && err == nil && (m.mode == ModeTwoTier || m.mode == ModeRedis)
}

// inRedis reports whether operations are carried out in Redis alone.
func (n *Node) inRedis() bool { return n.mode.Load().mode == ModeRedis }

// Mode returns how this node counts at present.
func (n *Node) Mode() Mode { return n.mode.Load().mode }

// SetMode has the whole cluster count in another way. First every node decides nothing more and has all that it counted in Redis, then
// all go on in the new mode: no count is lost, and none is decided on news that are out of date. Operations wait meanwhile. If
// a node can't be reached, or can't have everything in Redis in time, nothing changes.
func (n *Node) SetMode(ctx context.Context, mode Mode) error {
	if mode != ModeTwoTier && mode != ModeRedis {
		return &syncer.InvalidError{Check: -1, Limit: -1, Field: "mode", Detail: fmt.Sprintf("%q, want %q or %q", mode, ModeTwoTier, ModeRedis)}
	}
	if n.opt.Direct == nil || n.opt.Counter == nil {
		return &syncer.InvalidError{Check: -1, Limit: -1, Field: "mode", Detail: "this node can't be switched: it has no Redis"}
	}
	if !n.switching.TryLock() {
		return fmt.Errorf("%w: the mode is just being changed", syncer.ErrUnavailable)
	}
	defer n.switching.Unlock()
	if n.mode.Load().mode == mode {
		return nil
	}
	q := ModeQuestion{By: n.self().Name, Mode: mode, Turn: n.mode.Load().turn + 1, Phase: ModePrepare}
	ctx, cancel := context.WithTimeout(ctx, preparedTime)
	defer cancel()
	err := n.tellMode(ctx, q)
	if err != nil {
		q.Phase = ModeAbort
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		return errors.Join(fmt.Errorf("the mode stays %s: %w", n.Mode(), err), n.tellMode(undo, q))
	}
	q.Phase = ModeCommit
	if err := n.tellMode(ctx, q); err != nil {
		n.opt.Logger.Warn("a node did not hear that the mode has changed; it will by gossip", "error", err)
	}
	return nil
}

// tellMode tells all nodes, and this one, about a step of a change.
func (n *Node) tellMode(ctx context.Context, q ModeQuestion) error {
	var errs []error
	if n.opt.Ring != nil {
		t := n.opt.Ring.Table()
		found := make([]error, t.Len())
		rpc.Broadcast(ctx, t, prepareTimeout, func(ctx context.Context, m *ring.Member) {
			if err := n.opt.Peers.Ask(ctx, m, &q, nil); err != nil {
				found[t.Find(m.Name)] = err
			}
		})
		errs = found
	}
	return errors.Join(append(errs, n.takeMode(ctx, &q))...)
}

// takeMode does one step of a change.
func (n *Node) takeMode(ctx context.Context, q *ModeQuestion) error {
	if err := n.modeMu.Lock(ctx); err != nil {
		return fmt.Errorf("%w: the mode is just being changed", syncer.ErrUnavailable)
	}
	defer n.modeMu.Unlock()
	change := modeChange{q.By, q.Turn}
	switch {
	case q.Phase == ModeAbort:
		if n.prepared == change {
			n.resumeLocked()
		}
		return nil
	case q.Turn <= n.mode.Load().turn:
		return nil // it is done, or out of date
	case q.Phase == ModeCommit:
		return n.switchLocked(ctx, modeTurn{q.Mode, q.Turn})
	case n.prepared != modeChange{} && n.prepared != change:
		// The end of the one would be taken for that of the other.
		return fmt.Errorf("%w: the mode is just being changed by another node", syncer.ErrUnavailable)
	}
	if err := n.prepareLocked(ctx, change); err != nil {
		return err
	}
	n.spawn(func() { n.expireMode(change) })
	return nil
}

// switchLocked changes the mode of this node.
func (n *Node) switchLocked(ctx context.Context, m modeTurn) error {
	if n.prepared.turn != m.turn || m.turn == 0 { // it was away when the others prepared
		if err := n.prepareLocked(ctx, modeChange{turn: m.turn}); err != nil {
			return err
		}
	}
	n.mode.Store(&m)
	n.tenancy.forgo()
	n.opt.Logger.Info("the mode has changed", "mode", m.mode)
	n.resumeLocked()
	n.tenancy.wake()
	if n.opt.Ring != nil {
		tag := m.tag()
		n.spawn(func() {
			if err := n.opt.Ring.SetTag(n.run, tag); err != nil {
				n.opt.Logger.Warn("nobody heard of the mode yet", "error", err)
			}
		})
	}
	return nil
}

// prepareLocked stops deciding and has everything in Redis.
func (n *Node) prepareLocked(ctx context.Context, change modeChange) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	n.prepared = change
	n.paused.Store(true)
	n.tenancy.suspend()
	var err error
	for err == nil && (n.free.Load() > 0 || !n.holds.idle()) { // what is under way, or reserved
		retry.Pause(ctx, time.Millisecond)
		err = ctx.Err()
	}
	if err == nil {
		err = n.opt.Counter.Flush(ctx)
	}
	if err != nil {
		n.resumeLocked()
	}
	return err
}

// resumeLocked goes on in the mode that the node has.
func (n *Node) resumeLocked() {
	n.prepared = modeChange{}
	n.paused.Store(false)
	if !n.inRedis() {
		n.tenancy.begin()
	}
	n.tenancy.wake()
}

// expireMode goes on as before if nobody says how a change ends.
func (n *Node) expireMode(change modeChange) {
	retry.Pause(n.run, preparedTime)
	if n.modeMu.Lock(n.run) != nil {
		return
	}
	defer n.modeMu.Unlock()
	if n.prepared == change && n.mode.Load().turn < change.turn {
		n.opt.Logger.Warn("nobody said how a change of mode ended: going on as before", "mode", n.Mode())
		n.resumeLocked()
	}
}

// followMode takes over the mode of a member that knows of a later change, or that was there first with another mode.
func (n *Node) followMode() {
	t := n.table()
	now := n.mode.Load()
	latest, born := *now, n.self().Born
	for i := range t.Len() {
		o := t.Member(i)
		if m, ok := parseTag(o.Tag); ok && (m.turn > latest.turn || m.turn == latest.turn && m.mode != latest.mode && o.Born < born) {
			latest, born = m, o.Born
		}
	}
	if latest == *now || n.opt.Direct == nil || n.following.Swap(true) {
		return
	}
	n.spawn(func() {
		defer n.following.Store(false)
		if n.modeMu.Lock(n.run) != nil {
			return
		}
		defer n.modeMu.Unlock()
		if *n.mode.Load() != *now {
			return // it has changed meanwhile: what is the latest is to be looked at again
		}
		if err := n.switchLocked(n.run, latest); err != nil {
			n.opt.Logger.Warn("the mode of the cluster can't be followed yet", "mode", latest.mode, "error", err)
		}
	})
}

// throughRedis carries something out in Redis, unless the mode is just being changed: then that is waited for.
func (n *Node) throughRedis(ctx context.Context, fn func() error) error {
	n.free.Add(1)
	if !n.paused.Load() && n.inRedis() {
		defer n.free.Add(-1)
		return fn()
	}
	n.free.Add(-1)
	if err := n.awaitMode(ctx); err != nil {
		return err
	}
	return errModeChanged
}

// awaitMode waits while the mode is being changed.
func (n *Node) awaitMode(ctx context.Context) error {
	if err := n.tenancy.await(ctx, func() bool { return !n.paused.Load() }); err != nil {
		return fmt.Errorf("%w: the mode is just being changed", syncer.ErrUnavailable)
	}
	return nil
}
