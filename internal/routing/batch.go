package routing

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// DoAll runs operations in order and sets Err in each result. Operations on different keys may
// overtake each other.
func (r *Router) DoAll(ctx context.Context, ops []syncer.Op, res []syncer.Result) {
	switch {
	case ctx.Err() != nil:
		setErr(res, errExpired)
	case r.opt.Modes.InRedis():
		r.allInRedis(ctx, ops, res)
	default:
		r.divide(ctx, ops, res)
	}
}

// setErr fails all operations of a batch.
func setErr(res []syncer.Result, err error) {
	for i := range res {
		res[i].Err = err
	}
}

// allInRedis runs operations in Redis, or in memory if the mode has changed.
func (r *Router) allInRedis(ctx context.Context, ops []syncer.Op, res []syncer.Result) {
	err := r.opt.Modes.During(ctx, modes.Redis, func() error {
		r.opt.Direct.DoAll(ctx, ops, res)
		return nil
	})
	switch {
	case errors.Is(err, modes.ErrChanged):
		r.DoAll(ctx, ops, res)
	case err != nil:
		setErr(res, err)
	default:
		r.markAll(res)
	}
}

func (r *Router) markAll(res []syncer.Result) {
	for i := range res {
		r.opt.Mark(&res[i])
	}
}

// allLocal runs operations in this node's memory.
func (r *Router) allLocal(ctx context.Context, ops []syncer.Op, res []syncer.Result) {
	r.opt.Counter.DoAll(ctx, ops, res)
	for i := range ops {
		if err := res[i].Err; err != nil && r.servesFromRedis(&ops[i], err) {
			res[i].Err = r.opt.Direct.Do(ctx, &ops[i], &res[i])
		}
	}
	r.markAll(res)
}

// wave is a part of a batch that runs at the same time: operations with one owner are grouped by
// owner, in the order of the batch; those with several owners run individually.
type wave struct {
	groups  [][]int // positions by owner
	several []int   // positions of what has several owners
	// keys has the keys of the wave, and whether an operation with several owners touches them. It
	// is nil until the batch has such an operation.
	keys map[string]bool
}

// divide lets each owner run its operations, all at the same time. Operations that share a key run
// in the order in which they were given: if one of them has several owners, the later one waits for
// another wave.
func (r *Router) divide(ctx context.Context, ops []syncer.Op, res []syncer.Result) {
	t := r.opt.Table()
	w := wave{groups: make([][]int, t.Len())}
	for i := range ops {
		if _, one := r.ownerOf(t, &ops[i]); !one {
			w.keys = make(map[string]bool, len(ops))
			break
		}
	}
	for i := range ops {
		at, one := r.ownerOf(t, &ops[i])
		if w.collides(&ops[i], one) {
			r.finish(ctx, t, &w, ops, res)
		}
		if one && at != t.Self() && r.answered(ctx, t.Member(at), &ops[i], &res[i]) {
			continue
		}
		if one {
			w.groups[at] = append(w.groups[at], i)
		} else {
			w.several = append(w.several, i)
		}
		w.note(&ops[i], one)
	}
	r.finish(ctx, t, &w, ops, res)
}

// answered is shortcut for an operation of a batch.
func (r *Router) answered(
	ctx context.Context, owner *ring.Member, op *syncer.Op, res *syncer.Result,
) bool {
	done, err := r.shortcut(ctx, owner, op, res)
	if done {
		res.Err = err
	}
	return done
}

// collides reports whether an operation has to wait for the wave.
func (w *wave) collides(op *syncer.Op, one bool) bool {
	if len(w.keys) == 0 {
		return false
	}
	var b [384]byte
	for i := range op.Checks {
		severalOwners, taken := w.keys[string(op.Checks[i].AppendName(b[:0]))]
		if severalOwners || taken && !one {
			return true
		}
	}
	return false
}

// note notes the keys of an operation that is part of the wave.
func (w *wave) note(op *syncer.Op, one bool) {
	if w.keys == nil {
		return
	}
	var b [384]byte
	for i := range op.Checks {
		w.keys[string(op.Checks[i].AppendName(b[:0]))] = !one
	}
}

// maxSeveral is how many operations with several owners a batch runs at a time.
const maxSeveral = 64

// finish carries a wave out, and empties it.
func (r *Router) finish(
	ctx context.Context, t *ring.Table, w *wave, ops []syncer.Op, res []syncer.Result,
) {
	var done sync.WaitGroup
	var next atomic.Int64
	for range min(len(w.several), maxSeveral) {
		done.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(w.several)); k = next.Add(1) - 1 {
				i := w.several[k]
				res[i].Err = r.Do(ctx, &ops[i], &res[i])
			}
		})
	}
	r.dispatch(ctx, t, w.groups, ops, res)
	done.Wait()
	for i := range w.groups {
		w.groups[i] = w.groups[i][:0]
	}
	w.several = w.several[:0]
	clear(w.keys)
}

// dispatch lets each member run the operations at the given positions.
func (r *Router) dispatch(
	ctx context.Context, t *ring.Table, groups [][]int, ops []syncer.Op, res []syncer.Result,
) {
	var done sync.WaitGroup
	for at, group := range groups {
		if len(group) == 0 || at == t.Self() {
			continue
		}
		done.Go(func() { r.forwardGroup(ctx, t.Member(at), group, ops, res) })
	}
	if self := t.Self(); self >= 0 && len(groups[self]) > 0 {
		r.localGroup(ctx, groups[self], ops, res)
	}
	done.Wait()
}

// retryGroup runs those of a group that are decided elsewhere.
func (r *Router) retryGroup(
	ctx context.Context, d decision, group []int, ops []syncer.Op, res []syncer.Result,
) {
	for _, i := range group {
		if err := res[i].Err; err != nil {
			res[i].Err = r.retry(ctx, d, err, &ops[i], &res[i])
		}
	}
}

// localGroup runs the operations at the given positions in this node's memory.
func (r *Router) localGroup(
	ctx context.Context, group []int, ops []syncer.Op, res []syncer.Result,
) {
	defer r.retryGroup(ctx, decision{to: local}, group, ops, res)
	if len(group) == len(ops) {
		r.allLocal(ctx, ops, res)
		return
	}
	some, out := make([]syncer.Op, len(group)), make([]syncer.Result, len(group))
	for k, i := range group {
		some[k], out[k] = ops[i], res[i]
	}
	r.allLocal(ctx, some, out)
	for k, i := range group {
		res[i] = out[k]
	}
}

// forwardGroup forwards the operations at the given positions to another node.
func (r *Router) forwardGroup(
	ctx context.Context, to *ring.Member, group []int, ops []syncer.Op, res []syncer.Result,
) {
	tasks, out := make([]rpc.Task, len(group)), make([]syncer.Result, len(group))
	for k, i := range group {
		tasks[k].Op, out[k] = ops[i], res[i]
	}
	r.opt.Peers.Do(ctx, to, tasks, out)
	for k, i := range group {
		res[i] = out[k]
		if res[i].Err == nil {
			r.opt.Refusals.Note(&ops[i], &res[i])
			answeredByOwner(&res[i])
		}
	}
	r.retryGroup(ctx, decision{to: forward, owner: to}, group, ops, res)
}
