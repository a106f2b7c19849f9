package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// dropTimeout bounds the wait for other nodes to forget a key. It leaves time to send a lost
// message again.
const dropTimeout = time.Second

// Reset forgets a key, with everything counted so far, in the memory of every node and in the
// store. A node that can't be reached may still flush counts of the key. A node that the others
// wrongly declared dead, or that is on the other side of a split, brings back its unflushed counts,
// and carries out a reset requested there. In Redis mode the reset is complete once the store has
// forgotten the key. A node that could not be reached then, or that read a hot key during the
// reset, brings the key back if the store loses its data before that node has read the key again.
//
// The leases and the different values of the key end with it, and a mark records the time: the
// holds of the key that began before are settled as if they had counted nothing.
func (n *Node) Reset(ctx context.Context, ns, key []byte) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: the time for it is up", twotier.ErrUnavailable)
	}
	check := twotier.Check{NS: ns, Key: key}
	if twotier.Companion(ns) != "" {
		return n.reset(ctx, &check)
	}
	if err := n.markReset(ctx, &check); err != nil {
		return err
	}
	marked := n.opt.Clock.Now()
	var leases, values twotier.Check
	leases.NS, leases.Key = twotier.LeaseKey(ns, "", key)
	values.NS, values.Key = twotier.ValuesKey(ns, key)
	err := n.reset(ctx, &check)
	for _, companion := range []*twotier.Check{&leases, &values} {
		if err == nil {
			err = n.reset(ctx, companion)
		}
	}
	if err != nil {
		return asPartial(err, "holds of the key from before this time count as nothing")
	}
	if n.opt.Clock.Now() == marked {
		time.Sleep(time.Millisecond) // no later hold is as old as the mark
	}
	return nil
}

// markReset counts a reset of a key.
func (n *Node) markReset(ctx context.Context, c *twotier.Check) error {
	mark := twotier.Check{N: 1}
	mark.NS, mark.Key = twotier.ResetKey(c.NS, c.Key)
	var res [1]twotier.Result
	n.Record(ctx, []twotier.Op{{Kind: twotier.Add, Checks: []twotier.Check{mark}}}, res[:])
	return res[0].Err
}

// reset is Reset for one key without its companions.
func (n *Node) reset(ctx context.Context, c *twotier.Check) error {
	n.refused.Reset(c)
	if n.inRedis() {
		err := n.forgetInRedis(ctx, c)
		if err == nil {
			_ = n.dropOnAllNodes(ctx, c, true) // or a node would restore a key that Redis lost
		}
		if !errors.Is(err, modes.ErrChanged) {
			return err
		}
	}
	dropped := n.dropOnAllNodes(ctx, c, false)
	err := n.forgetAtOwner(ctx, c)
	if errors.Is(err, ownership.ErrInRedis) {
		// All counts of all nodes were flushed before the mode changed.
		err, dropped = n.reset(ctx, c), nil
	}
	return errors.Join(n.partialError(err), dropped)
}

// partialError is asPartial for a reset that the other nodes have carried out. If there are none,
// err stays as it is.
func (n *Node) partialError(err error) error {
	if n.opt.Ring == nil {
		return err
	}
	return asPartial(err, "all nodes but the owner have forgotten it")
}

// asPartial turns the error of a reset that has begun into ErrUnknownOutcome: it must not claim
// that nothing was done. done says what was.
func asPartial(err error, done string) error {
	var invalid *twotier.InvalidError
	if err == nil || errors.Is(err, twotier.ErrUnknownOutcome) || errors.As(err, &invalid) {
		return err
	}
	return fmt.Errorf("%w: %s: %v", twotier.ErrUnknownOutcome, done, err)
}

// forgetAtOwner resets a key on its current owner.
func (n *Node) forgetAtOwner(ctx context.Context, c *twotier.Check) error {
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		to, err := n.owned.Locate(ctx, n.opt.Placement.Of(c.NS, c.Key))
		switch {
		case err != nil:
			return err
		case to == nil:
			err = n.forget(ctx, c)
		default:
			err = n.sendReset(ctx, to, rpc.VerbReset, c)
		}
		if !errors.Is(err, twotier.ErrNotOwner) {
			return err
		}
	}
	return fmt.Errorf("%w: the key is being handed over", twotier.ErrUnavailable)
}

// sendReset asks another node for one step of a reset.
func (n *Node) sendReset(ctx context.Context, to *ring.Member, verb rpc.Verb,
	c *twotier.Check) error {
	task := [1]rpc.Task{{Verb: verb, Op: twotier.Op{Checks: []twotier.Check{*c}}}}
	var res [1]twotier.Result
	n.opt.Peers.Do(ctx, to, task[:], res[:])
	return res[0].Err
}

// forget resets a key that this node owns.
func (n *Node) forget(ctx context.Context, c *twotier.Check) error {
	if !n.inRedis() {
		return n.opt.Counter.ResetKey(ctx, c.NS, c.Key)
	}
	err := n.forgetInRedis(ctx, c)
	if errors.Is(err, modes.ErrChanged) {
		return twotier.ErrNotOwner // the caller has to locate the owner again
	}
	return err
}

// forgetInRedis resets a key in Redis mode, or returns modes.ErrChanged.
func (n *Node) forgetInRedis(ctx context.Context, c *twotier.Check) error {
	return n.modes.During(ctx, modes.Redis, func() error {
		return n.opt.Direct.Forget(ctx, c.NS, c.Key)
	})
}

// dropOnAllNodes makes all nodes forget a key that is being reset. This node does so too, if
// deciding is set or another node owns the key.
func (n *Node) dropOnAllNodes(ctx context.Context, c *twotier.Check, deciding bool) error {
	if n.opt.Ring == nil && !deciding {
		return nil // if no node decides at present, the mode is being changed
	}
	errs := []error{n.dropLocal(ctx, c, deciding)}
	if n.opt.Ring == nil {
		return errs[0]
	}
	var mu sync.Mutex // guards errs
	rpc.Broadcast(ctx, n.table(), dropTimeout, func(ctx context.Context, m *ring.Member) {
		if err := n.sendReset(ctx, m, rpc.VerbDrop, c); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("%w: not every node could be told: %v",
				twotier.ErrUnknownOutcome, err))
		}
	})
	return errors.Join(errs...)
}

// dropLocal is dropOnAllNodes for this node.
func (n *Node) dropLocal(ctx context.Context, c *twotier.Check, deciding bool) error {
	if n.opt.Counter == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	return n.opt.Counter.DropKey(ctx, c.NS, c.Key, deciding)
}
