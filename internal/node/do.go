package node

import (
	"context"
	"fmt"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/ring"
)

// errStarting refuses operations before Open.
var errStarting = fmt.Errorf("%w: this node is starting", twotier.ErrUnavailable)

// Do runs one operation. Its errors are those of syncer.Counter.Do.
func (n *Node) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if !n.opened.Load() {
		return errStarting
	}
	n.setDefaultAck(op)
	var err error
	if op.Hold == 0 && len(op.Rules)+len(op.Values) == 0 {
		err = n.router.Do(ctx, op, res)
	} else {
		err = n.doWithCompanions(ctx, op, res)
	}
	n.tallyOp(op, res, err)
	return err
}

// DoAll runs operations in order and sets Err in each result. Operations on different keys may
// overtake each other.
func (n *Node) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	if !n.opened.Load() {
		for i := range res {
			res[i].Err = errStarting
		}
		return
	}
	n.setDefaultAcks(ops)
	companioned := false
	for i := range ops {
		companioned = companioned || ops[i].Hold != 0 || len(ops[i].Rules)+len(ops[i].Values) > 0
	}
	if companioned {
		n.doAllWithCompanions(ctx, ops, res)
	} else {
		n.router.DoAll(ctx, ops, res)
	}
	n.tallyOps(ops, res)
}

// Record is DoAll for the node's internal operations, which its counters leave out.
func (n *Node) Record(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	if !n.opened.Load() {
		for i := range res {
			res[i].Err = errStarting
		}
		return
	}
	n.setDefaultAcks(ops)
	n.router.DoAll(ctx, ops, res)
}

// setDefaultAck gives an operation that names no acknowledgement the one this node is configured
// for. From then on, every node that handles the operation knows its acknowledgement.
func (n *Node) setDefaultAck(op *twotier.Op) {
	if op.Ack == twotier.AckDefault && op.Kind != twotier.Count {
		op.Ack = n.opt.Ack
	}
}

// setDefaultAcks is setDefaultAck for a batch.
func (n *Node) setDefaultAcks(ops []twotier.Op) {
	if n.opt.Ack <= twotier.AckMemory {
		return // which all other nodes assume, too
	}
	for i := range ops {
		n.setDefaultAck(&ops[i])
	}
}

// table returns the current state of the cluster.
func (n *Node) table() *ring.Table {
	if lone := n.lone.Load(); lone != nil {
		return lone
	}
	return n.opt.Ring.Table()
}

// self returns this node as a member of the cluster.
func (n *Node) self() ring.Member {
	if lone := n.lone.Load(); lone != nil {
		return *lone.Member(0)
	}
	return n.opt.Ring.Self()
}

// markingCounter wraps the node's counter and marks its answers while the time can't be trusted.
type markingCounter struct{ n *Node }

// DoAll is syncer.Counter.DoAll.
func (m markingCounter) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	m.n.opt.Counter.DoAll(ctx, ops, res)
	if m.n.opt.Clock.Doubt() == "" {
		return
	}
	for i := range res {
		res[i].Degraded = true
	}
}

// Confirm is syncer.Counter.Confirm.
func (m markingCounter) Confirm(ctx context.Context, op *twotier.Op) error {
	return m.n.opt.Counter.Confirm(ctx, op)
}

// Undo is syncer.Counter.Undo.
func (m markingCounter) Undo(op *twotier.Op) bool { return m.n.opt.Counter.Undo(op) }

// tally counts operations by kind and by the source of their answer.
type tally struct {
	n [len(kinds)][len(sources)]atomic.Int64
}

var (
	kinds   = [...]string{twotier.Add: "add", twotier.Count: "count", twotier.Acquire: "acquire"}
	sources = [...]twotier.Source{
		twotier.SourceMemory, twotier.SourceOwner, twotier.SourceRedis, twotier.SourceFallback,
		twotier.SourceDegraded, twotier.SourceNear,
	}
)

// add counts n operations.
func (t *tally) add(kind twotier.Kind, source twotier.Source, n int) {
	for i, s := range sources {
		if s == source {
			t.n[kind][i].Add(int64(n))
			return
		}
	}
}

// addAll counts the operations of a batch that succeeded. It adds runs of the same kind and source
// at once, because most batches are uniform.
func (t *tally) addAll(ops []twotier.Op, res []twotier.Result) {
	from := 0
	for i := range ops {
		if i > from && (ops[i].Kind != ops[from].Kind || res[i].Source != res[from].Source ||
			res[i].Err != nil) {
			t.add(ops[from].Kind, res[from].Source, i-from)
			from = i
		}
		if res[i].Err != nil {
			from = i + 1
		}
	}
	if from < len(ops) {
		t.add(ops[from].Kind, res[from].Source, len(ops)-from)
	}
}

func (t *tally) list() (list []cluster.OpCount) {
	for k := range t.n {
		for s := range t.n[k] {
			if n := t.n[k][s].Load(); n > 0 || sources[s] == twotier.SourceMemory {
				list = append(list,
					cluster.OpCount{Op: kinds[k], Source: string(sources[s]), Total: n})
			}
		}
	}
	return list
}

// tallyOp updates the node's own counters.
func (n *Node) tallyOp(op *twotier.Op, res *twotier.Result, err error) {
	if err != nil {
		return
	}
	n.ops.add(op.Kind, res.Source, 1)
	if n.sample != nil && n.modes.InRedis() {
		n.sampleKeys(op, res)
	}
}

// tallyOps is tallyOp for a batch.
func (n *Node) tallyOps(ops []twotier.Op, res []twotier.Result) {
	n.ops.addAll(ops, res)
	if n.sample == nil || !n.modes.InRedis() {
		return
	}
	for i := range ops {
		if res[i].Err == nil {
			n.sampleKeys(&ops[i], &res[i])
		}
	}
}

// sampleKeys samples the keys that an operation has counted.
func (n *Node) sampleKeys(op *twotier.Op, res *twotier.Result) {
	if op.Counts(res) {
		for i := range op.Checks {
			n.sample.Add(&op.Checks[i], n.opt.Clock.Now())
		}
		if len(op.Leases) > 0 {
			n.sampleLeases(op)
		}
	}
}

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
