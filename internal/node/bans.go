package node

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
	"twotier.dev/twotier/internal/companions"
)

// doWithCompanions runs an operation with a hold or values, or judged by rules with a ban.
func (n *Node) doWithCompanions(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	n.setUntil(op)
	if !companions.Needs(op) {
		return n.router.Do(ctx, op, res)
	}
	x := companions.Extend(op, n.opt.Placement.Seed)
	if err := n.router.Do(ctx, &x.Op, res); err != nil {
		return x.OriginalError(err)
	}
	x.ReduceResult(res)
	x.TryShadow(ctx, n.router.Do, res)
	return nil
}

// setUntil sets the end of an operation's hold.
func (n *Node) setUntil(op *twotier.Op) {
	if op.Hold > 0 {
		op.Until = twotier.LeaseEnd(n.opt.Clock.Now(), op.Hold)
	}
}

// doAllWithCompanions runs a batch that has operations with companions.
func (n *Node) doAllWithCompanions(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	extended, list := make([]*companions.Extended, len(ops)), make([]twotier.Op, len(ops))
	for i := range ops {
		n.setUntil(&ops[i])
		if list[i] = ops[i]; companions.Needs(&ops[i]) {
			extended[i] = companions.Extend(&ops[i], n.opt.Placement.Seed)
			list[i] = extended[i].Op
		}
	}
	n.router.DoAll(ctx, list, res)
	for i, x := range extended {
		switch {
		case x == nil:
		case res[i].Err != nil:
			res[i].Err = x.OriginalError(res[i].Err)
		default:
			x.ReduceResult(&res[i])
			x.TryShadow(ctx, n.router.Do, &res[i])
		}
	}
}

// maxBans bounds the bans in one answer to another node.
const maxBans = 10_000

// Bans returns up to limit bans that may still be in force and that a node has seen start or refuse
// a request. A non-empty ns or name selects the bans of that namespace or rule. It asks all nodes
// that can be reached.
func (n *Node) Bans(ctx context.Context, ns, name string, limit int) []twotier.Banned {
	lists := [][]twotier.Banned{n.bans.List(ns, name, limit)}
	askOthers(ctx, n, topTimeout, &BansRequest{ns, name, limit}, func(a *BansResponse) {
		lists = append(lists, a.Bans)
	})
	return bans.Union(limit, lists...)
}
