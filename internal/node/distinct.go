package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// pendingTimeout bounds the wait for another node's unflushed values, pendingResponses the number
// of responses per node, each of at most distinct.MaxPending, and pendingTimes the attempts at a
// request that fails: a connection may break at any time.
const (
	pendingTimeout   = 500 * time.Millisecond
	pendingResponses = 64
	pendingTimes     = 5
)

// handoverTimeout bounds the attempts of a stopping node to pass on its unflushed values, and
// heirTimeout the wait for one node's answer.
const (
	handoverTimeout = 5 * time.Second
	heirTimeout     = time.Second
)

var (
	errNoHeir = errors.New("no other node decides about it")
	errSilent = errors.New("it has not answered before")
)

var errNoDistinct = fmt.Errorf("%w: this node does not count distinct values",
	twotier.ErrUnavailable)

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

// flushDistinct flushes the distinct values pending now.
func (n *Node) flushDistinct(ctx context.Context) error {
	if n.opt.Distinct == nil {
		return nil
	}
	return n.opt.Distinct.Flush(ctx)
}

// drainDistinct refuses further values and flushes all pending ones.
func (n *Node) drainDistinct(ctx context.Context) error {
	if n.opt.Distinct == nil {
		return nil
	}
	d := n.opt.Distinct
	d.Drain()
	last := d.Stats().Flushed
	return n.flushUntilDone(ctx, d.Flush, func() (progress bool) {
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

// Distinct adds values to a key, unless a limit forbids it, and counts the different values added
// so far. An operation without values only counts. Any operation can be repeated, whatever its
// outcome: adding a value again changes nothing.
func (n *Node) Distinct(ctx context.Context, op *distinct.Op, values [][]byte,
	res *distinct.Result) error {
	switch {
	case !n.opened.Load():
		return errStarting
	case n.opt.Distinct == nil:
		return errNoDistinct
	}
	n.setHashes(op, values)
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		err := n.tryDistinct(ctx, op, res)
		if err == nil {
			n.recordDistinct(op, res)
			return nil
		}
		if !errors.Is(err, twotier.ErrNotOwner) && !errors.Is(err, modes.ErrChanged) {
			n.overloads.count(err)
			return err
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: the time for it is up", twotier.ErrUnavailable)
	}
	return fmt.Errorf("%w: the key is being handed over", twotier.ErrUnavailable)
}

// setHashes sets the hashes of an operation's values.
func (n *Node) setHashes(op *distinct.Op, values [][]byte) {
	op.Hashes = op.Hashes[:0]
	for _, v := range values {
		op.Hashes = append(op.Hashes, n.opt.Distinct.Hash(v))
	}
}

// recordDistinct records an answer, from whichever node.
func (n *Node) recordDistinct(op *distinct.Op, res *distinct.Result) {
	if len(op.Hashes) > 0 && !res.Allowed {
		n.denied.RecordKey(op.NS, op.Key)
	}
	if n.opt.Clock.Doubt() != "" {
		res.Degraded = true
	}
}

// tryDistinct is one attempt of Distinct.
func (n *Node) tryDistinct(ctx context.Context, op *distinct.Op, res *distinct.Result) error {
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
	var a DistinctResponse
	err = n.askDistinct(ctx, to, op, &a)
	switch {
	case errors.Is(err, rpc.ErrUnreachable) && n.owned.DecidedBy(to, p):
		if err = n.distinctInMemory(ctx, op, res, true); res.Source == twotier.SourceMemory {
			res.Source = twotier.SourceFallback
		}
		return err
	case errors.Is(err, rpc.ErrUnreachable):
		return twotier.ErrNotOwner
	case err != nil:
		return err
	}
	*res = a.Result
	setOwnerSource(res)
	return nil
}

// askDistinct asks a node, and then the owner that its reply names. A failure to reach the second
// node is returned as twotier.ErrNotOwner, because it is no evidence that the first one is
// unreachable.
func (n *Node) askDistinct(ctx context.Context, to *ring.Member, op *distinct.Op,
	a *DistinctResponse) error {
	q := &DistinctRequest{*op}
	err := n.opt.Peers.Ask(ctx, to, q, a)
	var moved *rpc.MovedError
	if errors.As(err, &moved) && moved.To.Name != n.self().Name {
		if err = n.opt.Peers.Ask(ctx, &moved.To, q, a); errors.Is(err, rpc.ErrUnreachable) {
			err = twotier.ErrNotOwner
		}
	}
	return err
}

// setOwnerSource turns the owner's answer into the answer of the node that received the request.
func setOwnerSource(res *distinct.Result) {
	if res.Source == twotier.SourceMemory {
		res.Source = twotier.SourceOwner
	}
	if !res.Allowed && res.RetryAfter == 0 { // an older version of the owner leaves it out
		res.RetryAfter = -1
	}
}

func (n *Node) distinctInRedis(ctx context.Context, op *distinct.Op, res *distinct.Result) error {
	return n.modes.During(ctx, modes.Redis, func() error {
		return n.opt.Distinct.DoInStore(ctx, op, res)
	})
}

// distinctInMemory runs an operation here; inPlace marks one that another node should decide.
func (n *Node) distinctInMemory(ctx context.Context, op *distinct.Op, res *distinct.Result,
	inPlace bool) error {
	stops, running := n.pulseNow()
	if !running {
		return twotier.ErrNotOwner
	}
	err := n.modes.During(ctx, modes.TwoTier, func() error {
		return n.opt.Distinct.Do(ctx, op, res, inPlace)
	})
	if err == nil && res.Allowed && len(op.Limits)*len(op.Hashes) > 0 && !n.hasRunSince(stops) {
		return errStoodStill
	}
	return err
}

// serveDistinct runs an operation for another node. It forwards nothing, but names the owner.
func (n *Node) serveDistinct(ctx context.Context, op *distinct.Op, res *distinct.Result) error {
	if n.opt.Distinct == nil {
		return errNoDistinct
	}
	if n.inRedis() {
		return errorForPeer(n.distinctInRedis(ctx, op, res))
	}
	to, err := n.owned.Locate(ctx, n.opt.Distinct.Partition(op))
	switch {
	case err != nil:
		return errorForPeer(err)
	case to != nil:
		return &rpc.MovedError{To: *to}
	}
	return errorForPeer(n.distinctInMemory(ctx, op, res, false))
}

// errorForPeer turns errors that only mean something on this node into ErrNotOwner.
func errorForPeer(err error) error {
	if errors.Is(err, modes.ErrChanged) || errors.Is(err, ownership.ErrInRedis) {
		return twotier.ErrNotOwner
	}
	return err
}

// gatherDistinct asks the other nodes for their unflushed values of some partitions.
func (n *Node) gatherDistinct(ctx context.Context, partitions []int) (all []distinct.Pending) {
	silent := n.opt.Peers.Stats().Silent
	var mu sync.Mutex
	rpc.Broadcast(ctx, n.table(), pendingTimeout, func(ctx context.Context, m *ring.Member) {
		if slices.Contains(silent, m.Name) {
			return
		}
		budget := pendingResponses
		keys, _ := n.askPending(ctx, m, partitions, &budget)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
	})
	return all
}

// askPending asks one node, for at most *budget responses. One of the maximum length may be cut
// short: then askPending asks for each half of the partitions.
func (n *Node) askPending(ctx context.Context, m *ring.Member, partitions []int,
	budget *int) (keys []distinct.Pending, ok bool) {
	var a DistinctPendingResponse
	if *budget--; *budget < 0 {
		return nil, false
	}
	q, times := &DistinctPendingRequest{partitions}, 1
	for n.opt.Peers.Ask(ctx, m, q, &a) != nil {
		if times++; times > pendingTimes || !retry.Pause(ctx, pendingTimeout/20) {
			return nil, false
		}
	}
	half := len(partitions) / 2
	if half == 0 || !distinct.IsCut(a.Keys) {
		return a.Keys, true
	}
	first, one := n.askPending(ctx, m, partitions[:half], budget)
	second, other := n.askPending(ctx, m, partitions[half:], budget)
	if keys = append(first, second...); !one || !other {
		keys = append(keys, a.Keys...)
	}
	return keys, true
}

// listPendingDistinct answers gatherDistinct.
func (n *Node) listPendingDistinct(q *DistinctPendingRequest) *DistinctPendingResponse {
	if n.opt.Distinct == nil {
		return &DistinctPendingResponse{}
	}
	return &DistinctPendingResponse{n.opt.Distinct.ListUnflushed(q.Partitions)}
}

// handOverDistinct passes unflushed values on to the nodes that own their keys now, or will soon,
// however little time everything else has left. A node that is leaving as well may refuse: then its
// heir is asked.
func (n *Node) handOverDistinct(ctx context.Context) {
	if n.opt.Distinct == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handoverTimeout)
	defer cancel()
	remaining := n.handOverOnce(ctx)
	for remaining > 0 && n.hasSuccessor() && retry.Pause(ctx, drainLinger) {
		remaining = n.handOverOnce(ctx)
	}
	if remaining > 0 {
		n.opt.Logger.Warn("not all distinct values could be handed over: flushing them",
			"keys", remaining)
	}
}

// handOverOnce tries each heir, but skips one that has already failed to answer.
func (n *Node) handOverOnce(ctx context.Context) (remaining int) {
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

// importDistinct accepts the values that another node hands over.
func (n *Node) importDistinct(q *DistinctHandover) error {
	if n.opt.Distinct == nil {
		return errNoDistinct
	}
	if remaining := n.opt.Distinct.Import(q.Keys); remaining > 0 {
		return fmt.Errorf("%w (keys: %d)", twotier.ErrFull, remaining)
	}
	return nil
}
