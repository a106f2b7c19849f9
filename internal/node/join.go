package node

import (
	"context"
	"errors"
	"time"

	"twotier.dev/twotier/internal/retry"
)

// Roster lists the living processes that use the same data. roster.Roster implements it.
type Roster interface {
	// Enter lists this node, and waits until it belongs to the cluster of the listed nodes.
	Enter(ctx context.Context) error
	// Run keeps this node listed until ctx is done.
	Run(ctx context.Context)
	// Leave removes this node from the list.
	Leave(ctx context.Context)
}

// enter makes the node one that others may find, and an owner.
func (n *Node) enter(ctx context.Context, address string) error {
	if n.opt.Ring != nil {
		return n.join(ctx, address)
	}
	err := n.setSingleNodeTable(address)
	n.router.Refresh()
	return errors.Join(err, n.enterRoster(ctx))
}

// enterRoster enters the roster, if there is one, and keeps this node in it.
func (n *Node) enterRoster(ctx context.Context) error {
	if n.opt.Roster == nil {
		return nil
	}
	if err := n.opt.Roster.Enter(ctx); err != nil {
		return err
	}
	n.background(n.opt.Roster.Run)
	return nil
}

// settleTimeout bounds how long a joining node waits for its partitions.
const settleTimeout = 10 * time.Second

// join makes the node part of the cluster. It returns once the node decides about its partitions,
// or enough time has passed.
func (n *Node) join(ctx context.Context, address string) error {
	if err := n.refused.Open(n.opt.Refusals); err != nil {
		return err
	}
	if err := n.opt.Ring.Open(ctx, address); err != nil {
		return err
	}
	n.router.Refresh()
	if err := n.enterRoster(ctx); err != nil {
		return err
	}
	if err := n.refuseTwin(ctx); err != nil {
		return err
	}
	n.opt.Ring.Enter(ctx)
	n.router.Refresh()
	n.background(n.runFollow)
	n.background(n.parts.Run)
	n.spawn(func() { n.hot.Run(n.run) })
	n.wakeFollow()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for !n.owned.IsSettled() && ctx.Err() == nil {
		retry.Pause(ctx, drainPause)
	}
	return nil
}
