package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// pendingTimeout bounds how long other nodes may take to say what they have and the store lacks,
// pendingAnswers how many answers of at most distinct.MaxPending each of them gives, and
// pendingTimes how often a question is asked that fails: a connection may break at any time.
const (
	pendingTimeout = 500 * time.Millisecond
	pendingAnswers = 64
	pendingTimes   = 5
)

// handoverTimeout bounds how long a node that stops tries to pass on what the store lacks, and
// heirTimeout how long one node may take to answer.
const (
	handoverTimeout = 5 * time.Second
	heirTimeout     = time.Second
)

var (
	errNoHeir = errors.New("no other node decides about it")
	errSilent = errors.New("it has not answered before")
)

var errNoDistinct = fmt.Errorf("%w: this node does not count distinct values",
	syncer.ErrUnavailable)

// openDistinct makes the engine for distinct values follow the ownership of this node.
func (n *Node) openDistinct() {
	switch {
	case n.opt.Distinct == nil:
	case n.opt.Ring == nil:
		n.opt.Distinct.Open(nil, nil)
	default:
		n.opt.Distinct.Open(n.owned, n.gatherDistinct)
	}
}

// flushDistinct flushes what is there now.
func (n *Node) flushDistinct(ctx context.Context) error {
	if n.opt.Distinct == nil {
		return nil
	}
	return n.opt.Distinct.Flush(ctx)
}

// drainDistinct ends the adding of values, and flushes all.
func (n *Node) drainDistinct(ctx context.Context) error {
	if n.opt.Distinct == nil {
		return nil
	}
	d := n.opt.Distinct
	d.Drain()
	last := d.Stats().Flushed
	return n.flushLast(ctx, d.Flush, func() (progress bool) {
		s := d.Stats()
		progress = s.Flushed > last
		last = s.Flushed
		return progress
	})
}

// closeDistinct closes the engine. It does not wait again if an earlier flush has given up.
func (n *Node) closeDistinct(ctx context.Context) error {
	if n.opt.Distinct == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if n.gaveUp.Load() {
		cancel()
	}
	return n.opt.Distinct.Close(ctx)
}

// Distinct adds values to a key, unless a limit forbids it, and counts how many different ones it
// has had. An operation without values only counts. Whatever becomes of one, it can be repeated: a
// value that was added already changes nothing.
func (n *Node) Distinct(ctx context.Context, op *distinct.Op, values [][]byte,
	res *distinct.Result) error {
	switch {
	case !n.opened.Load():
		return errStarting
	case n.opt.Distinct == nil:
		return errNoDistinct
	}
	n.hash(op, values)
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		err := n.distinct(ctx, op, res)
		if err == nil {
			n.decided(op, res)
			return nil
		}
		if !errors.Is(err, syncer.ErrNotOwner) && !errors.Is(err, modes.ErrChanged) {
			n.overloads.note(err)
			return err
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: the time for it is up", syncer.ErrUnavailable)
	}
	return fmt.Errorf("%w: the key is being handed over", syncer.ErrUnavailable)
}

// hash gives an operation the hashes of its values.
func (n *Node) hash(op *distinct.Op, values [][]byte) {
	op.Hashes = op.Hashes[:0]
	for _, v := range values {
		op.Hashes = append(op.Hashes, n.opt.Distinct.Hash(v))
	}
}

// decided takes in an answer, wherever it was decided.
func (n *Node) decided(op *distinct.Op, res *distinct.Result) {
	if len(op.Hashes) > 0 && !res.Allowed {
		n.denied.NoteKey(op.NS, op.Key)
	}
	if n.opt.Clock.Doubt() != "" {
		res.Degraded = true
	}
}

// distinct is one attempt of Distinct.
func (n *Node) distinct(ctx context.Context, op *distinct.Op, res *distinct.Result) error {
	if n.inRedis() {
		return n.distinctInRedis(ctx, op, res)
	}
	p := n.opt.Distinct.Partition(op)
	to, err := n.owned.Locate(ctx, p)
	switch {
	case errors.Is(err, ownership.ErrInRedis):
		return modes.ErrChanged
	case err != nil:
		return err
	case to == nil:
		return n.distinctInMemory(ctx, op, res, false)
	}
	var a DistinctAnswer
	err = n.askDistinct(ctx, to, op, &a)
	switch {
	case errors.Is(err, rpc.ErrUnreachable) && n.owned.DecidedBy(to, p):
		if err = n.distinctInMemory(ctx, op, res, true); res.Source == syncer.SourceMemory {
			res.Source = syncer.SourceFallback
		}
		return err
	case errors.Is(err, rpc.ErrUnreachable):
		return syncer.ErrNotOwner
	case err != nil:
		return err
	}
	*res = a.Result
	fromOwner(res)
	return nil
}

// askDistinct asks a node, and then the one that it names instead. If the second one can't be
// reached, that says nothing about the first.
func (n *Node) askDistinct(ctx context.Context, to *ring.Member, op *distinct.Op,
	a *DistinctAnswer) error {
	q := &DistinctQuestion{*op}
	err := n.opt.Peers.Ask(ctx, to, q, a)
	var moved *rpc.MovedError
	if errors.As(err, &moved) && moved.To.Name != n.self().Name {
		if err = n.opt.Peers.Ask(ctx, &moved.To, q, a); errors.Is(err, rpc.ErrUnreachable) {
			err = syncer.ErrNotOwner
		}
	}
	return err
}

// fromOwner makes an answer of the owner that of the node that was asked.
func fromOwner(res *distinct.Result) {
	if res.Source == syncer.SourceMemory {
		res.Source = syncer.SourceOwner
	}
	if !res.Allowed && res.RetryAfter == 0 { // the owner is of a version that does not say
		res.RetryAfter = -1
	}
}

func (n *Node) distinctInRedis(ctx context.Context, op *distinct.Op, res *distinct.Result) error {
	return n.modes.During(ctx, modes.Redis, func() error {
		return n.opt.Distinct.DoInStore(ctx, op, res)
	})
}

// distinctInMemory runs an operation here; inPlace is set if another node should decide.
func (n *Node) distinctInMemory(ctx context.Context, op *distinct.Op, res *distinct.Result,
	inPlace bool) error {
	return n.modes.During(ctx, modes.TwoTier, func() error {
		return n.opt.Distinct.Do(ctx, op, res, inPlace)
	})
}

// serveDistinct runs an operation for another node. It forwards nothing, but says who decides.
func (n *Node) serveDistinct(ctx context.Context, op *distinct.Op, res *distinct.Result) error {
	if n.opt.Distinct == nil {
		return errNoDistinct
	}
	if n.inRedis() {
		return elsewhere(n.distinctInRedis(ctx, op, res))
	}
	to, err := n.owned.Locate(ctx, n.opt.Distinct.Partition(op))
	switch {
	case err != nil:
		return elsewhere(err)
	case to != nil:
		return &rpc.MovedError{To: *to}
	}
	return elsewhere(n.distinctInMemory(ctx, op, res, false))
}

// elsewhere makes an ErrNotOwner of errors that only mean something on this node.
func elsewhere(err error) error {
	if errors.Is(err, modes.ErrChanged) || errors.Is(err, ownership.ErrInRedis) {
		return syncer.ErrNotOwner
	}
	return err
}

// gatherDistinct asks the other nodes what they have of some partitions and the store may lack.
func (n *Node) gatherDistinct(ctx context.Context, partitions []int) (all []distinct.Pending) {
	silent := n.opt.Peers.Stats().Silent
	var mu sync.Mutex
	rpc.Broadcast(ctx, n.table(), pendingTimeout, func(ctx context.Context, m *ring.Member) {
		if slices.Contains(silent, m.Name) {
			return
		}
		left := pendingAnswers
		keys, _ := n.pendingAt(ctx, m, partitions, &left)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
	})
	return all
}

// pendingAt asks one node, for at most so many answers as are left. One that is as long as an
// answer may be has not all of it: then the node is asked for the halves of the partitions.
func (n *Node) pendingAt(ctx context.Context, m *ring.Member, partitions []int,
	left *int) (keys []distinct.Pending, ok bool) {
	var a DistinctPendingAnswer
	if *left--; *left < 0 {
		return nil, false
	}
	q, times := &DistinctPendingQuestion{partitions}, 1
	for n.opt.Peers.Ask(ctx, m, q, &a) != nil {
		if times++; times > pendingTimes || !retry.Pause(ctx, pendingTimeout/20) {
			return nil, false
		}
	}
	half := len(partitions) / 2
	if half == 0 || !distinct.IsCut(a.Keys) {
		return a.Keys, true
	}
	first, one := n.pendingAt(ctx, m, partitions[:half], left)
	second, other := n.pendingAt(ctx, m, partitions[half:], left)
	if keys = append(first, second...); !one || !other {
		keys = append(keys, a.Keys...)
	}
	return keys, true
}

// pendingDistinct answers gatherDistinct.
func (n *Node) pendingDistinct(q *DistinctPendingQuestion) *DistinctPendingAnswer {
	if n.opt.Distinct == nil {
		return &DistinctPendingAnswer{}
	}
	return &DistinctPendingAnswer{n.opt.Distinct.Pending(q.Partitions)}
}

// handOverDistinct passes on what the store may lack to the nodes that decide about it now, or
// soon, however little time there was for all else. A node may refuse, because it is leaving as
// well: then its heir is asked.
func (n *Node) handOverDistinct(ctx context.Context) {
	if n.opt.Distinct == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handoverTimeout)
	defer cancel()
	left := n.handOverOnce(ctx)
	for left > 0 && n.hasSuccessor() && retry.Pause(ctx, drainLinger) {
		left = n.handOverOnce(ctx)
	}
	if left > 0 {
		n.opt.Logger.Warn("not all distinct values could be handed over: flushing them",
			"keys", left)
	}
}

// handOverOnce tries each heir, but not again one that has not answered.
func (n *Node) handOverOnce(ctx context.Context) (left int) {
	t := n.table()
	silent := map[int]bool{}
	return n.opt.Distinct.HandOver(t.Owner, func(member int, keys []distinct.Pending) error {
		switch {
		case member == t.Self():
			return errNoHeir
		case silent[member]:
			return errSilent
		}
		within, cancel := context.WithTimeout(ctx, heirTimeout)
		defer cancel()
		err := n.opt.Peers.Ask(within, t.Member(member), &DistinctHandover{keys}, nil)
		silent[member] = within.Err() != nil || errors.Is(err, rpc.ErrUnreachable)
		return err
	})
}

// importDistinct takes what another node hands over.
func (n *Node) importDistinct(q *DistinctHandover) error {
	if n.opt.Distinct == nil {
		return errNoDistinct
	}
	if left := n.opt.Distinct.Import(q.Keys); left > 0 {
		return fmt.Errorf("%w (keys: %d)", syncer.ErrFull, left)
	}
	return nil
}
