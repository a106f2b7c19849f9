package routing

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// Counter counts in this node's memory, see syncer.Counter.
type Counter interface {
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// Peers runs tasks, or groups of operations of a batch, on other nodes at the same time, see
// node.Peers. Its errors are the ones of package rpc.
type Peers interface {
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []twotier.Result)
	DoAll(
		ctx context.Context, groups []rpc.Group, ops []twotier.Op, res []twotier.Result,
		meanwhile func(), over func(group int),
	)
}

// Owners reports the current owner of a partition, see ownership.Partitions.
type Owners interface {
	Locate(ctx context.Context, partition int) (to *ring.Member, err error)
	DecidedBy(m *ring.Member, partition int) bool
}

// Acquirer runs acquires over several owners, see multiowner.Acquirer.
type Acquirer interface {
	Acquire(ctx context.Context, list []multiowner.Request)
}

// Loans samples operations on keys of other nodes, see hotkeys.Tracker.
type Loans interface{ Sample(ops []twotier.Op) }

// Refusals remembers refusals by other nodes, see refusals.Cache.
type Refusals interface {
	Record(op *twotier.Op, res *twotier.Result)
	Refuse(op *twotier.Op, res *twotier.Result) bool
	Forget(check *twotier.Check)
}

// Modes runs operations in one mode of the cluster, see modes.Switch.
type Modes interface {
	During(ctx context.Context, in modes.Mode, fn func() error) error
}

// View is the state of the cluster that routing depends on. It is immutable.
type View struct {
	// Table assigns partitions to members.
	Table *ring.Table
	// InRedis means that the cluster counts in Redis.
	InRedis bool
	// Shared holds the names of the keys that this node borrows or lends.
	Shared map[string]bool
	// InDoubt means that the time can't be trusted: answers of this node are degraded.
	InDoubt bool
}

// shares reports whether this node borrows or lends a key, so that nodes that don't own it can
// probably count it.
func (v *View) shares(c *twotier.Check) bool {
	var b [384]byte // longer than any name, so that nothing is allocated
	return v.Shared[string(c.AppendName(b[:0]))]
}

// Options configure a [Router]. All fields except Direct are required; a node that only ever counts
// in Redis needs just View, Direct and Modes.
type Options struct {
	// View returns the current state of the cluster. It must not wait. After each change,
	// [Router.Refresh] must be called.
	View func() View
	// Placement assigns keys to partitions. Self is this node's name.
	Placement twotier.Placement
	Self      func() string
	Owners    Owners
	// Counter counts in this node's memory. Recalling is the same counter, but recalls lent counts
	// before it takes them back: it runs operations that take back, and their batches.
	Counter, Recalling Counter
	// Direct runs operations in Redis. Without it, a node can't count there, and can't serve keys
	// that don't fit in memory.
	Direct   Counter
	Peers    Peers
	Acquirer Acquirer
	Loans    Loans
	Refusals Refusals
	Modes    Modes
	// StoreUp reports whether the store answers.
	StoreUp func() bool
}

// Router runs operations on the nodes that own their keys.
type Router struct {
	opt      Options
	view     atomic.Pointer[View]
	mu       sync.Mutex // orders the calls of Refresh
	messages sync.Pool  // of *message
	waves    sync.Pool  // of *wave
}

// New returns a router.
func New(opt Options) *Router {
	r := &Router{opt: opt}
	r.messages.New = func() any { return new(message) }
	r.waves.New = func() any { return new(wave) }
	r.Refresh()
	return r
}

// Refresh makes the router follow a change of the view. Operations under way may still use the
// previous view.
func (r *Router) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.opt.View()
	r.view.Store(&v)
}

// destination is where an operation goes.
type destination uint8

// The destinations, see the package's documentation.
const (
	local destination = iota
	takeBack
	forward
	several
	relay
	fallback
	redis
)

// decision is the destination of an operation and the nodes involved.
type decision struct {
	to    destination
	owner *ring.Member // of forward and relay
	// parts belongs to several, and to fallback if some owners can be reached.
	parts []multiowner.Part
	// inPlace and detours belong to fallback: the checks whose owners can't be reached from this
	// node, and the other owners, which may reach them.
	inPlace []int
	detours []*ring.Member
	// borrow marks a decision that left borrowed keys out of account.
	borrow bool
}

// Do runs one operation. Its errors are those of syncer.Counter.Do, except twotier.ErrNotOwner.
func (r *Router) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if ctx.Err() != nil {
		return errExpired
	}
	d := r.decideByTable(op, true)
	if d.to == several || d.to == relay {
		r.opt.Loans.Sample([]twotier.Op{*op})
	}
	if err := r.execute(ctx, &d, op, res); err != nil {
		return r.retry(ctx, d, err, op, res)
	}
	return nil
}

// execute runs an operation by a decision.
func (r *Router) execute(
	ctx context.Context, d *decision, op *twotier.Op, res *twotier.Result,
) error {
	switch d.to {
	case local:
		return r.completeLocal(ctx, op, res, r.opt.Counter.Do(ctx, op, res))
	case takeBack:
		return r.completeLocal(ctx, op, res, r.opt.Recalling.Do(ctx, op, res))
	case forward:
		return r.forward(ctx, d.owner, op, res)
	case several:
		r.opt.Acquirer.Acquire(ctx, []multiowner.Request{{Op: op, Res: res, Parts: d.parts}})
		return r.countIfDenied(ctx, op, res, res.Err)
	case relay:
		return r.relayAcquire(ctx, d.owner, op, res)
	case fallback:
		return r.fallback(ctx, *d, op, res) // a copy, or every decision would be on the heap
	default:
		return r.runInRedis(ctx, op, res)
	}
}

// decideByTable decides by the mode and the ring's table, without waiting. With borrow, the owner
// of the other keys may count the borrowed ones. If this node owns none of the keys of an acquire,
// one of the owners runs it, which takes fewer messages. An acquire that waits for the store is not
// relayed: it would make others wait for their turn.
func (r *Router) decideByTable(op *twotier.Op, borrow bool) decision {
	v := r.view.Load()
	if v.InRedis {
		return decision{to: redis}
	}
	t := v.Table
	at, one := r.ownerOf(v, op, borrow)
	switch {
	case one && at == t.Self():
		return decision{to: memoryDestination(op)}
	case one:
		return decision{to: forward, owner: t.Member(at)}
	}
	var parts []multiowner.Part
	mine := false
	for i := range op.Checks {
		var to *ring.Member
		if owner := t.Owner(r.partition(&op.Checks[i])); owner == t.Self() {
			mine = true
		} else {
			to = t.Member(owner)
		}
		parts = addPart(parts, to, i)
	}
	if !mine && op.Ack < twotier.AckStore {
		return decision{to: relay, owner: parts[0].To}
	}
	return decision{to: several, parts: parts}
}

// memoryDestination returns the destination of an operation that this node runs in its memory.
func memoryDestination(op *twotier.Op) destination {
	if op.TakesBack() {
		return takeBack
	}
	return local
}

// ownerOf returns the index of the member that owns all keys of an operation according to the
// table. With borrow, borrowed keys do not count.
func (r *Router) ownerOf(v *View, op *twotier.Op, borrow bool) (at int, one bool) {
	t := v.Table
	self := t.Self()
	at, borrow = -1, borrow && len(v.Shared) > 0 && self >= 0
	for i := range op.Checks {
		c := &op.Checks[i]
		owner := t.Owner(r.partition(c))
		if owner == self && len(op.Checks) == 1 {
			return self, true // whether it is lent or not
		}
		if borrow && op.MayBorrow() && v.shares(c) {
			continue
		}
		switch at {
		case -1:
			at = owner
		case owner:
		default:
			return 0, false
		}
	}
	if at < 0 {
		at = self // nodes borrow all of them
	}
	return at, true
}

func (r *Router) partition(c *twotier.Check) int { return r.opt.Placement.Of(c.NS, c.Key) }

// addPart adds a check to the part of a node; nil stands for this node.
func addPart(parts []multiowner.Part, to *ring.Member, check int) []multiowner.Part {
	for i := range parts {
		if o := parts[i].To; o == to || o != nil && to != nil && o.Name == to.Name {
			parts[i].Checks = append(parts[i].Checks, check)
			return parts
		}
	}
	return append(parts, multiowner.Part{To: to, Checks: []int{check}})
}

// completeLocal completes an operation that has run in this node's memory with this error. If
// memory had no room for its key, it runs in Redis.
func (r *Router) completeLocal(
	ctx context.Context, op *twotier.Op, res *twotier.Result, err error,
) error {
	if err != nil && r.servesFromRedis(op, err) {
		err = r.opt.Direct.Do(ctx, op, res)
	}
	r.markUntrustedTime(res)
	return err
}

// markUntrustedTime marks an answer of this node if its time can't be trusted.
func (r *Router) markUntrustedTime(res *twotier.Result) {
	if r.view.Load().InDoubt {
		res.Degraded = true
	}
}

// servesFromRedis reports whether an operation that failed for lack of memory can run in Redis: it
// has one key and Redis is up. If Redis is down, an immediate error is better than a pointless
// wait.
func (r *Router) servesFromRedis(op *twotier.Op, err error) bool {
	return r.opt.Direct != nil && len(op.Checks) == 1 && errors.Is(err, twotier.ErrFull) &&
		r.opt.StoreUp()
}

func (r *Router) runInRedis(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	err := r.opt.Modes.During(ctx, modes.Redis, func() error {
		return r.opt.Direct.Do(ctx, op, res)
	})
	r.markUntrustedTime(res)
	return err
}

// Serve runs operations forwarded by another node, in order, and sets Err in each result. It
// forwards nothing: an operation on keys that this node does not own fails with an rpc.MovedError
// that names the owner, or with twotier.ErrNotOwner.
func (r *Router) Serve(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	switch {
	case r.view.Load().InRedis:
		for i := range ops {
			res[i].Err = r.runInRedis(ctx, &ops[i], &res[i])
		}
	case len(ops) == 1:
		res[0].Err = r.execute(ctx, &decision{to: memoryDestination(&ops[0])}, &ops[0], &res[0])
	default:
		r.doAllLocal(ctx, ops, res)
	}
	for i := range ops {
		err := res[i].Err
		if errors.Is(err, twotier.ErrNotOwner) || errors.Is(err, modes.ErrChanged) {
			r.opt.Loans.Sample(ops[i : i+1])
			res[i].Err = r.serveMoved(ctx, &ops[i], &res[i])
		}
	}
}

// serveMoved runs an operation whose keys this node did not own when it arrived.
func (r *Router) serveMoved(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	for search := retry.Within(ownership.WaitTimeout); ; {
		d, err := r.decideByOwners(ctx, search, op)
		switch {
		case err != nil || d.to == several:
			return twotier.ErrNotOwner // the sender has to divide it, or to look again
		case d.to == forward:
			return &rpc.MovedError{To: *d.owner}
		}
		err = r.execute(ctx, &d, op, res)
		if !errors.Is(err, twotier.ErrNotOwner) && !errors.Is(err, modes.ErrChanged) {
			return err
		}
	}
}
