package routing

import (
	"context"
	"errors"
	"slices"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// DoAll runs operations in order and sets Err in each result. Operations on different keys may
// overtake each other.
func (r *Router) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	switch v := r.view.Load(); {
	case ctx.Err() != nil:
		setErr(res, errExpired)
	case v.InRedis:
		r.doAllInRedis(ctx, ops, res)
	default:
		r.opt.Loans.Sample(ops)
		r.runInWaves(ctx, v, ops, res, len(v.Shared) > 0 && v.mayBorrow(ops))
	}
}

// mayBorrow reports whether a batch may be divided with borrowed keys left out of account. It may
// not if an operation changes a borrowed key in a way that only the owner can: that change could
// overtake, or be overtaken by, operations counted on the borrowing node.
func (v *View) mayBorrow(ops []twotier.Op) bool {
	for i := range ops {
		if op := &ops[i]; !op.MayBorrow() && !op.Reads() && v.sharesAny(op) {
			return false
		}
	}
	return true
}

// sharesAny reports whether nodes borrow keys of an operation from each other.
func (v *View) sharesAny(op *twotier.Op) bool {
	for i := range op.Checks {
		if v.shares(&op.Checks[i]) {
			return true
		}
	}
	return false
}

func setErr(res []twotier.Result, err error) {
	for i := range res {
		res[i].Err = err
	}
}

// doAllInRedis runs operations in Redis, or in memory if the mode has changed.
func (r *Router) doAllInRedis(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	err := r.opt.Modes.During(ctx, modes.Redis, func() error {
		r.opt.Direct.DoAll(ctx, ops, res)
		return nil
	})
	switch {
	case errors.Is(err, modes.ErrChanged):
		r.Refresh() // a stale view would lead to the same error again
		r.DoAll(ctx, ops, res)
	case err != nil:
		setErr(res, err)
	default:
		r.markAllUntrustedTime(res)
	}
}

func (r *Router) markAllUntrustedTime(res []twotier.Result) {
	for i := range res {
		r.markUntrustedTime(&res[i])
	}
}

// doAllLocal runs operations in this node's memory.
func (r *Router) doAllLocal(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	counter := r.opt.Counter
	for i := range ops {
		if ops[i].TakesBack() {
			counter = r.opt.Recalling
			break
		}
	}
	counter.DoAll(ctx, ops, res)
	for i := range ops {
		if err := res[i].Err; err != nil && r.servesFromRedis(&ops[i], err) {
			res[i].Err = r.opt.Direct.Do(ctx, &ops[i], &res[i])
		}
	}
	r.markAllUntrustedTime(res)
}

// wave is the part of a batch that runs concurrently. Operations with one owner are grouped by
// owner, in batch order; operations with several owners run individually. The router reuses a
// wave's memory.
type wave struct {
	borrow  bool        // borrowed keys were left out of account
	owners  []int       // of each operation of the batch; severalOwners if there are several
	groups  [][]int     // positions by owner
	remote  []rpc.Group // the groups of other members that are not empty
	several []int       // positions of the operations with several owners
	// keys holds the keys of the wave; the value is true if an operation with several owners
	// touches the key. It is nil unless the batch has such an operation.
	keys map[string]bool
	// ops and res hold operations that run on this node while others of the batch run elsewhere.
	ops []twotier.Op
	res []twotier.Result
}

const severalOwners = -1

// begin makes w the empty first wave of a batch.
func (w *wave) begin(r *Router, v *View, ops []twotier.Op, borrow bool) {
	w.owners, w.keys, w.borrow = w.owners[:0], nil, borrow
	for i := range ops {
		at, one := r.ownerOf(v, &ops[i], borrow)
		if !one {
			at = severalOwners
			if w.keys == nil {
				w.keys = make(map[string]bool, len(ops))
			}
		}
		w.owners = append(w.owners, at)
	}
	w.groups = slices.Grow(w.groups[:0], v.Table.Len())[:v.Table.Len()]
	w.clear()
}

func (w *wave) clear() {
	for i := range w.groups {
		w.groups[i] = w.groups[i][:0]
	}
	w.several = w.several[:0]
	clear(w.keys)
}

// runInWaves has each owner run its operations, all owners at the same time. Operations that share
// a key run in the order given: if one of them has several owners, the later one waits for another
// wave. With borrow, the owner of an operation's other keys may count the borrowed ones.
func (r *Router) runInWaves(
	ctx context.Context, v *View, ops []twotier.Op, res []twotier.Result, borrow bool,
) {
	t, w := v.Table, r.waves.Get().(*wave)
	w.begin(r, v, ops, borrow)
	for i, at := range w.owners {
		one := at != severalOwners
		if w.collides(&ops[i], one) {
			r.runWave(ctx, t, w, ops, res)
		}
		if one && at != t.Self() && r.answerFromRefusal(&ops[i], &res[i]) {
			continue
		}
		if one {
			w.groups[at] = append(w.groups[at], i)
		} else {
			w.several = append(w.several, i)
		}
		w.add(&ops[i], one)
	}
	r.runWave(ctx, t, w, ops, res)
	r.waves.Put(w)
}

// collides reports whether an operation has to wait for the wave.
func (w *wave) collides(op *twotier.Op, one bool) bool {
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

// add records the keys of an operation that joins the wave.
func (w *wave) add(op *twotier.Op, one bool) {
	if w.keys == nil {
		return
	}
	var b [384]byte
	for i := range op.Checks {
		w.keys[string(op.Checks[i].AppendName(b[:0]))] = !one
	}
}

// runWave runs a wave and empties it.
func (r *Router) runWave(
	ctx context.Context, t *ring.Table, w *wave, ops []twotier.Op, res []twotier.Result,
) {
	var done sync.WaitGroup
	if len(w.several) > 0 {
		done.Go(func() { r.acquireAllAcrossOwners(ctx, w.several, ops, res) })
	}
	r.dispatch(ctx, t, w, ops, res)
	done.Wait()
	r.runAtOwners(ctx, w, ops, res)
	w.clear()
}

// runAtOwners reruns the operations of a wave that failed because a node had not borrowed enough.
// This time the owners of the borrowed keys decide.
func (r *Router) runAtOwners(ctx context.Context, w *wave, ops []twotier.Op, res []twotier.Result) {
	var again []int
	for _, group := range w.groups {
		for _, i := range group {
			if errors.Is(res[i].Err, errNotBorrowed) {
				again = append(again, i)
			}
		}
	}
	if len(again) == 0 {
		return
	}
	slices.Sort(again)
	some, out := make([]twotier.Op, len(again)), make([]twotier.Result, len(again))
	for k, i := range again {
		some[k], out[k] = ops[i], res[i]
	}
	r.runInWaves(ctx, r.view.Load(), some, out, false)
	for k, i := range again {
		res[i] = out[k]
	}
}

// dispatch has each member run its group, all at the same time; this node's group runs on the
// calling goroutine. Retries run separately, so that an operation waiting for its new owner does
// not hold up the others.
func (r *Router) dispatch(
	ctx context.Context, t *ring.Table, w *wave, ops []twotier.Op, res []twotier.Result,
) {
	var retries sync.WaitGroup
	retry := func(d decision, group []int) {
		if slices.ContainsFunc(group, func(i int) bool { return res[i].Err != nil }) {
			retries.Go(func() { r.retryGroup(ctx, d, group, ops, res) })
		}
	}
	runLocal := func() {
		if self := t.Self(); self >= 0 && len(w.groups[self]) > 0 {
			r.runLocalGroup(ctx, w, w.groups[self], ops, res)
			retry(decision{to: local, borrow: w.borrow}, w.groups[self])
		}
	}
	if w.remote = w.appendRemote(w.remote[:0], t); len(w.remote) == 0 {
		runLocal()
	} else {
		r.opt.Peers.DoAll(ctx, w.remote, ops, res, runLocal, func(i int) {
			g := w.remote[i]
			r.recordForwarded(g.At, ops, res)
			retry(decision{to: forward, owner: g.To, borrow: w.borrow}, g.At)
		})
	}
	retries.Wait()
}

// appendRemote appends the non-empty groups of other members.
func (w *wave) appendRemote(list []rpc.Group, t *ring.Table) []rpc.Group {
	for at, group := range w.groups {
		if len(group) > 0 && at != t.Self() {
			list = append(list, rpc.Group{To: t.Member(at), At: group})
		}
	}
	return list
}

// errNotBorrowed marks an operation of a batch as left to runAtOwners.
var errNotBorrowed = errors.New("a borrowed key can't be counted there")

// retryGroup retries the failed operations of a group, except those it leaves to runAtOwners.
func (r *Router) retryGroup(
	ctx context.Context, d decision, group []int, ops []twotier.Op, res []twotier.Result,
) {
	for _, i := range group {
		switch op, err := &ops[i], res[i].Err; {
		case err == nil:
		case d.borrow && errors.Is(err, twotier.ErrNotOwner) && op.MayBorrow() &&
			r.view.Load().sharesAny(op):
			res[i].Err = errNotBorrowed
		default:
			res[i].Err = r.retry(ctx, d, err, op, &res[i])
		}
	}
}

// runLocalGroup runs the operations at the given positions in this node's memory.
func (r *Router) runLocalGroup(
	ctx context.Context, w *wave, group []int, ops []twotier.Op, res []twotier.Result,
) {
	if len(group) == len(ops) {
		r.doAllLocal(ctx, ops, res)
		return
	}
	w.ops, w.res = w.ops[:0], w.res[:0]
	for _, i := range group {
		w.ops, w.res = append(w.ops, ops[i]), append(w.res, res[i])
	}
	r.doAllLocal(ctx, w.ops, w.res)
	for k, i := range group {
		res[i] = w.res[k]
	}
	clear(w.ops)
	clear(w.res)
}

// recordForwarded records another node's answers to the operations at the given positions.
func (r *Router) recordForwarded(group []int, ops []twotier.Op, res []twotier.Result) {
	for _, i := range group {
		if res[i].Err == nil {
			r.opt.Refusals.Record(&ops[i], &res[i])
			setOwnerSource(&res[i])
		}
	}
}
