package node

import (
	"context"
	"errors"
	"fmt"

	"twotier/internal/multiowner"
	"twotier/internal/ownership"
	"twotier/internal/retry"
	"twotier/internal/rpc"
	"twotier/ring"
	"twotier/syncer"
)

// errModeChanged says that an operation has to be begun anew, in another mode.
var errModeChanged = ownership.ErrInRedis

// errOver says that nothing was counted, as the time for it was up.
var errOver = fmt.Errorf("%w: the time for it is up", syncer.ErrUnavailable)

// do carries an operation out where its keys are at home: here, at their owner, or at several.
func (n *Node) do(ctx context.Context, op *Op, res *Result) error {
	switch {
	case !n.opened.Load():
		return fmt.Errorf("%w: this node is starting", syncer.ErrUnavailable)
	case ctx.Err() != nil:
		return errOver
	case n.inRedis():
		return n.doInRedis(ctx, op, res)
	}
	t := n.table()
	at, one := n.ownerOf(t, op)
	var err error
	switch {
	case !one:
		err = n.across(ctx, op, res, n.shares(t, op))
	case at == t.Self():
		err = n.here(ctx, op, res)
	default:
		err = n.away(ctx, t.Member(at), op, res)
	}
	if err == nil || !errors.Is(err, syncer.ErrNotOwner) {
		return err
	}
	return n.look(ctx, op, res)
}

// look carries out an operation whose keys are not where the table says, or on their way. Nodes that have not heard the same yet
// may send it to and fro for a while.
func (n *Node) look(ctx context.Context, op *Op, res *Result) error {
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		shares, err := n.whereabouts(ctx, op)
		switch {
		case errors.Is(err, errModeChanged):
			return n.doInRedis(ctx, op, res)
		case err != nil:
			return err
		case len(shares) > 1:
			err = n.across(ctx, op, res, shares)
		case shares[0].To == nil:
			err = n.here(ctx, op, res)
		default:
			err = n.there(ctx, shares[0].To, op, res)
		}
		if !errors.Is(err, syncer.ErrNotOwner) {
			return err
		}
	}
	return fmt.Errorf("%w: nobody who can be reached says that it decides about the key", syncer.ErrUnavailable)
}

// across carries out an Acquire whose keys several nodes decide about. If some of those can't be
// reached this node stands in for them.
func (n *Node) across(ctx context.Context, op *Op, res *Result, parts []multiowner.Part) error {
	err := n.several.Acquire(ctx, op, res, parts)
	if unreachable, ok := errors.AsType[*multiowner.UnreachableError](err); ok {
		for _, p := range unreachable.Parts {
			if !n.decidesAll(p, op) {
				return syncer.ErrNotOwner
			}
		}
		return n.standIn(ctx, op, res)
	}
	if err == nil && !res.Allowed && op.CountDenied {
		return n.countDenied(ctx, op)
	}
	return err
}

// decidesAll reports whether a part is with the member that decides about its keys.
func (n *Node) decidesAll(p multiowner.Part, op *Op) bool {
	for _, i := range p.Checks {
		if !n.owned.DecidedBy(p.To, n.partition(&op.Checks[i])) {
			return false
		}
	}
	return true
}

// countDenied counts all the same what was refused.
func (n *Node) countDenied(ctx context.Context, op *Op) error {
	for i := range op.Checks {
		c := op.Checks[i]
		c.Limits = nil
		add := Op{Kind: syncer.Add, TS: op.TS, Ack: op.Ack, Checks: []Check{c}}
		var res Result
		if err := n.do(ctx, &add, &res); err != nil {
			return fmt.Errorf("%w: not all of it was counted: %v", syncer.ErrUnknownOutcome, err)
		}
	}
	return nil
}

// doInRedis carries an operation out in Redis.
func (n *Node) doInRedis(ctx context.Context, op *Op, res *Result) error {
	err := n.throughRedis(ctx, func() error { return n.opt.Direct.Do(ctx, op, res) })
	if errors.Is(err, errModeChanged) {
		return n.do(ctx, op, res)
	}
	n.mark(res)
	return err
}

// throughRedis carries something out in Redis, unless the mode is just being changed: then that is
// waited for.
func (n *Node) throughRedis(ctx context.Context, fn func() error) error {
	if n.modes.Enter(ModeRedis) {
		defer n.modes.Leave()
		return fn()
	}
	if err := n.modes.Await(ctx); err != nil {
		return err
	}
	return errModeChanged
}

// partition of a check.
func (n *Node) partition(c *Check) int { return n.opt.Placement.Of(c.NS, c.Key) }

// ownerOf returns the position of the member that owns all keys of an operation, by the table.
func (n *Node) ownerOf(t *ring.Table, op *Op) (at int, one bool) {
	at = t.Owner(n.partition(&op.Checks[0]))
	for i := 1; i < len(op.Checks); i++ {
		if t.Owner(n.partition(&op.Checks[i])) != at {
			return 0, false
		}
	}
	return at, true
}

// shares divides an operation among the owners of its keys, by the table.
func (n *Node) shares(t *ring.Table, op *Op) (list []multiowner.Part) {
	for i := range op.Checks {
		to := t.Member(t.Owner(n.partition(&op.Checks[i])))
		if t.Mine(n.partition(&op.Checks[i])) {
			to = nil
		}
		list = addShare(list, to, i)
	}
	return list
}

// whereabouts is shares by who decides about the keys at this moment. It waits for partitions that are on their way to this node.
func (n *Node) whereabouts(ctx context.Context, op *Op) (list []multiowner.Part, err error) {
	for i := range op.Checks {
		to, err := n.owned.Locate(ctx, n.partition(&op.Checks[i]))
		if err != nil {
			return nil, err
		}
		list = addShare(list, to, i)
	}
	return list, nil
}

func addShare(list []multiowner.Part, to *ring.Member, check int) []multiowner.Part {
	for i := range list {
		if o := list[i].To; o == to || o != nil && to != nil && o.Name == to.Name {
			list[i].Checks = append(list[i].Checks, check)
			return list
		}
	}
	return append(list, multiowner.Part{To: to, Checks: []int{check}})
}

// here carries out an operation in this node's memory. A new key that there is no memory for is served from Redis.
func (n *Node) here(ctx context.Context, op *Op, res *Result) error {
	err := n.opt.Counter.Do(ctx, op, res)
	if err != nil && n.servesFromRedis(op, err) {
		err = n.opt.Direct.Do(ctx, op, res)
	}
	n.mark(res)
	return err
}

// servesFromRedis reports whether an operation that memory has no room for can be carried out in Redis: it is about one
// key, that is not in memory, and Redis is up. If it is not, being told at once is better than to wait for nothing.
func (n *Node) servesFromRedis(op *Op, err error) bool {
	return n.opt.Direct != nil && len(op.Checks) == 1 && errors.Is(err, syncer.ErrFull) && n.opt.Store.Health().Up
}

// standIn counts in place of an owner that can't be reached: what this node counts and what the others count meet in the store,
// within three flush intervals. It is for those only that can't be reached: to count in the place of one that is slow would be to
// count beside it.
func (n *Node) standIn(ctx context.Context, op *Op, res *Result) error {
	if ctx.Err() != nil {
		return errOver
	}
	err := n.foreign(ctx, op, res, false)
	switch {
	case errors.Is(err, errModeChanged):
		if err := n.modes.Await(ctx); err != nil {
			return err
		}
		return n.do(ctx, op, res)
	case errors.Is(err, syncer.ErrNotOwner):
		return fmt.Errorf("%w: the key is just changing hands", syncer.ErrUnavailable)
	}
	return err
}

// foreign carries out an operation here on keys of another node, in its place or beside it, unless the mode is just being changed.
func (n *Node) foreign(ctx context.Context, op *Op, res *Result, beside bool) error {
	if !n.modes.Enter(ModeTwoTier) {
		return errModeChanged
	}
	defer n.modes.Leave()
	own := *op
	own.AllowNonOwner, own.RequireStore = true, beside
	err := n.opt.Counter.Do(ctx, &own, res)
	n.mark(res)
	return err
}

// away carries out an operation on keys of another node: here, if the node may do that or remembers the answer, or there.
func (n *Node) away(ctx context.Context, to *ring.Member, op *Op, res *Result) error {
	if n.near(ctx, to, op, res) {
		err := res.Err
		res.Err = nil
		return err
	}
	err := n.there(ctx, to, op, res)
	if err == nil {
		n.refused.Note(op, res)
	}
	return err
}

// near carries out an operation on a key of another node, if this one may count it and the store is there to meet the others in, or
// remembers that it is refused. Err is set in the result.
func (n *Node) near(ctx context.Context, owner *ring.Member, op *Op, res *Result) bool {
	if op.Checks[0].N < 0 {
		n.refused.Forget(&op.Checks[0]) // before whatever follows in the same batch is looked at
	}
	if n.hot.Leased(op, owner) {
		res.Err = n.foreign(ctx, op, res, true)
		return !errors.Is(res.Err, syncer.ErrNotOwner) && !errors.Is(res.Err, errModeChanged)
	}
	return n.refused.Refuse(op, res)
}

// errand is memory for asking another node to carry out one operation.
type errand struct {
	tasks [1]rpc.Task
	res   [1]Result
}

// there has another node carry out an operation, or does without it if that can't be reached.
func (n *Node) there(ctx context.Context, to *ring.Member, op *Op, res *Result) error {
	e := n.errands.Get().(*errand)
	defer n.errands.Put(e)
	e.tasks[0] = rpc.Task{Op: *op}
	e.res[0], *res = *res, e.res[0] // so that the memory of res is used
	err := n.send(ctx, to, e)
	e.res[0], *res = *res, e.res[0]
	e.tasks[0] = rpc.Task{}
	return n.unanswered(ctx, to, op, res, err)
}

// unanswered decides what becomes of an operation that another node was asked to carry out: if that one decides about the keys, and can't
// be reached, this node stands in for it. What was certainly not carried out otherwise, or may be carried out twice, is ErrNotOwner:
// it is to be looked at again who decides.
func (n *Node) unanswered(ctx context.Context, to *ring.Member, op *Op, res *Result, err error) error {
	switch {
	case errors.Is(err, rpc.ErrUnreachable) && n.decides(to, op):
		return n.standIn(ctx, op, res)
	case errors.Is(err, rpc.ErrUnreachable), op.Kind == syncer.Count && errors.Is(err, syncer.ErrUnknownOutcome):
		return syncer.ErrNotOwner
	}
	return err
}

// decides reports whether a member decides about all keys of an operation, as far as this node knows.
func (n *Node) decides(m *ring.Member, op *Op) bool {
	for i := range op.Checks {
		if !n.owned.DecidedBy(m, n.partition(&op.Checks[i])) {
			return false
		}
	}
	return true
}

// send asks a node, and then the one that it names instead. That this one can't be reached says nothing of the first.
func (n *Node) send(ctx context.Context, to *ring.Member, e *errand) error {
	n.opt.Peers.Do(ctx, to, e.tasks[:], e.res[:])
	err := e.res[0].Err
	var moved *rpc.MovedError
	if errors.As(err, &moved) && moved.To.Name != n.self().Name {
		n.opt.Peers.Do(ctx, &moved.To, e.tasks[:], e.res[:])
		if err = e.res[0].Err; errors.Is(err, rpc.ErrUnreachable) {
			err = syncer.ErrNotOwner
		}
	}
	if res := &e.res[0]; err == nil && res.Source == syncer.SourceMemory {
		res.Source = syncer.SourceOwner
	}
	e.res[0].Err = nil
	return err
}
