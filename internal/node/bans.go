package node

import (
	"context"
	"sync"

	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/internal/bans"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// doWithBans runs an operation that rules with a ban judge.
func (n *Node) doWithBans(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	x := bans.Extend(op)
	if err := n.router.Do(ctx, &x.Op, res); err != nil {
		return x.Explain(err)
	}
	n.fold(x, op, res)
	return nil
}

// doAllWithBans runs a batch in which there are such operations.
func (n *Node) doAllWithBans(ctx context.Context, ops []syncer.Op, res []syncer.Result) {
	extended, list := make([]*bans.Extended, len(ops)), make([]syncer.Op, len(ops))
	for i := range ops {
		if list[i] = ops[i]; len(ops[i].Rules) > 0 {
			extended[i] = bans.Extend(&ops[i])
			list[i] = extended[i].Op
		}
	}
	n.router.DoAll(ctx, list, res)
	for i, x := range extended {
		switch {
		case x == nil:
		case res[i].Err != nil:
			res[i].Err = x.Explain(res[i].Err)
		default:
			n.fold(x, &ops[i], &res[i])
		}
	}
}

// maxBans bounds the bans that a node tells another one.
const maxBans = 10_000

// fold takes the bans out of a result, and notes them.
func (n *Node) fold(x *bans.Extended, op *syncer.Op, res *syncer.Result) {
	x.Fold(res)
	n.bans.Note(op, res, n.opt.Clock.Now())
}

// Bans returns up to limit bans that nodes have seen start, or refuse something, and that may not
// have ended: of a namespace and of a rule of that name, unless these are empty. It asks all nodes
// that can be reached.
func (n *Node) Bans(ctx context.Context, ns, name string, limit int) []rule.Banned {
	lists := [][]rule.Banned{n.bans.List(ns, name, limit, n.opt.Clock.Now())}
	if n.opt.Ring == nil {
		return lists[0]
	}
	var mu sync.Mutex
	rpc.Broadcast(ctx, n.table(), topTimeout, func(ctx context.Context, m *ring.Member) {
		var a BansAnswer
		if err := n.opt.Peers.Ask(ctx, m, &BansQuestion{ns, name, limit}, &a); err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		lists = append(lists, a.Bans)
	})
	return bans.Union(limit, lists...)
}

// BanLog returns what counts the bans that start.
func (n *Node) BanLog() *bans.Log { return &n.bans }
