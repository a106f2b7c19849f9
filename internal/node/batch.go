package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"twotier/internal/rpc"
	"twotier/ring"
	"twotier/syncer"
)

// doAll is DoAll without the figures.
func (n *Node) doAll(ctx context.Context, ops []Op, res []Result) {
	switch {
	case !n.opened.Load():
		for i := range res {
			res[i].Err = fmt.Errorf("%w: this node is starting", syncer.ErrUnavailable)
		}
	case ctx.Err() != nil:
		for i := range res {
			res[i].Err = errOver
		}
	case n.inRedis():
		err := n.throughRedis(ctx, func() error { n.opt.Direct.DoAll(ctx, ops, res); return nil })
		switch {
		case errors.Is(err, errModeChanged):
			n.doAll(ctx, ops, res)
		case err != nil:
			for i := range res {
				res[i].Err = err
			}
		default:
			n.markAll(res)
		}
	default:
		n.divide(ctx, ops, res)
	}
}

// allHere carries out operations in this node's memory.
func (n *Node) allHere(ctx context.Context, ops []Op, res []Result) {
	n.opt.Counter.DoAll(ctx, ops, res)
	for i := range ops {
		if err := res[i].Err; err != nil && n.servesFromRedis(&ops[i], err) {
			res[i].Err = n.opt.Direct.Do(ctx, &ops[i], &res[i])
		}
	}
	n.markAll(res)
}

// wave is a part of a batch that is carried out at the same time: what has one owner in groups, in the order of the batch, and what has
// several by itself.
type wave struct {
	groups [][]int // positions by owner
	across []int   // positions of what has several owners
	// keys are those of the wave, and whether an operation with several owners touches them, once there is one of those in the batch.
	keys map[string]bool
}

// divide has each owner carry out its operations, all at the same time. Operations that share a key are carried out in the order in
// which they were given: where one of them has several owners, the later one waits for another wave.
func (n *Node) divide(ctx context.Context, ops []Op, res []Result) {
	t := n.table()
	w := wave{groups: make([][]int, t.Len())}
	for i := range ops {
		if _, one := n.ownerOf(t, &ops[i]); !one {
			w.keys = make(map[string]bool, len(ops))
			break
		}
	}
	for i := range ops {
		at, one := n.ownerOf(t, &ops[i])
		if w.collides(&ops[i], one) {
			n.carryOut(ctx, t, &w, ops, res)
		}
		switch {
		case !one:
			w.across = append(w.across, i)
		case at != t.Self() && n.near(ctx, t.Member(at), &ops[i], &res[i]):
			continue
		default:
			w.groups[at] = append(w.groups[at], i)
		}
		w.note(&ops[i], one)
	}
	n.carryOut(ctx, t, &w, ops, res)
}

// collides reports whether an operation has to wait for the wave.
func (w *wave) collides(op *Op, one bool) bool {
	if len(w.keys) == 0 {
		return false
	}
	var b [384]byte
	for i := range op.Checks {
		if across, taken := w.keys[string(op.Checks[i].AppendName(b[:0]))]; across || taken && !one {
			return true
		}
	}
	return false
}

// note notes the keys of an operation that is part of the wave.
func (w *wave) note(op *Op, one bool) {
	if w.keys == nil {
		return
	}
	var b [384]byte
	for i := range op.Checks {
		w.keys[string(op.Checks[i].AppendName(b[:0]))] = !one
	}
}

// maxAcross is how many operations with several owners a batch has under way at a time.
const maxAcross = 64

// carryOut carries a wave out, and empties it.
func (n *Node) carryOut(ctx context.Context, t *ring.Table, w *wave, ops []Op, res []Result) {
	var done sync.WaitGroup
	var next atomic.Int64
	for range min(len(w.across), maxAcross) {
		done.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(w.across)); k = next.Add(1) - 1 {
				i := w.across[k]
				res[i].Err = n.do(ctx, &ops[i], &res[i])
			}
		})
	}
	n.dispatch(ctx, t, w.groups, ops, res)
	done.Wait()
	for i := range w.groups {
		w.groups[i] = w.groups[i][:0]
	}
	w.across = w.across[:0]
	clear(w.keys)
}

// dispatch has each member carry out the operations at the given positions, and then those that were not where the table says.
func (n *Node) dispatch(ctx context.Context, t *ring.Table, groups [][]int, ops []Op, res []Result) {
	var done sync.WaitGroup
	for at, group := range groups {
		if len(group) == 0 || at == t.Self() {
			continue
		}
		done.Go(func() { n.groupThere(ctx, t.Member(at), group, ops, res) })
	}
	if self := t.Self(); self >= 0 && len(groups[self]) > 0 {
		n.groupHere(ctx, groups[self], ops, res)
	}
	done.Wait()
	for _, group := range groups {
		for _, i := range group {
			if errors.Is(res[i].Err, syncer.ErrNotOwner) {
				res[i].Err = n.look(ctx, &ops[i], &res[i])
			}
		}
	}
}

// groupHere carries out the operations at the given positions in this node's memory.
func (n *Node) groupHere(ctx context.Context, group []int, ops []Op, res []Result) {
	if len(group) == len(ops) {
		n.allHere(ctx, ops, res)
		return
	}
	mine, out := make([]Op, len(group)), make([]Result, len(group))
	for k, i := range group {
		mine[k], out[k] = ops[i], res[i]
	}
	n.allHere(ctx, mine, out)
	for k, i := range group {
		res[i] = out[k]
	}
}

// groupThere has another node carry out the operations at the given positions.
func (n *Node) groupThere(ctx context.Context, to *ring.Member, group []int, ops []Op, res []Result) {
	tasks, out := make([]rpc.Task, len(group)), make([]Result, len(group))
	for k, i := range group {
		tasks[k].Op, out[k] = ops[i], res[i]
	}
	n.opt.Peers.Do(ctx, to, tasks, out)
	for k, i := range group {
		res[i] = out[k]
		if res[i].Err == nil {
			n.refused.Note(&ops[i], &res[i])
			if res[i].Source == syncer.SourceMemory {
				res[i].Source = syncer.SourceOwner
			}
		}
		if err := res[i].Err; err != nil {
			res[i].Err = n.unanswered(ctx, to, &ops[i], &res[i], err)
		}
	}
}
