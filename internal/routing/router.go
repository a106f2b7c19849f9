package routing

import (
	"context"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
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
