package routing

import (
	"context"
	"sync"

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

// Loans reports which hot keys nodes borrow from each other, see hotkeys.Tracker.
type Loans interface {
	Any() bool
	Shared(check *twotier.Check) bool
	Observe(ops []twotier.Op)
}

// Refusals remembers refusals by other nodes, see refusals.Cache.
type Refusals interface {
	Note(op *twotier.Op, res *twotier.Result)
	Refuse(op *twotier.Op, res *twotier.Result) bool
	Forget(check *twotier.Check)
}

// Modes reports where the cluster counts, see modes.Switch.
type Modes interface {
	InRedis() bool
	During(ctx context.Context, in modes.Mode, fn func() error) error
}

// Options configure a [Router]. All fields except Direct are required; a node that only ever counts
// in Redis needs just Direct, Modes and Mark.
type Options struct {
	// Placement assigns keys to partitions, Table partitions to members. Self is this node's name.
	Placement twotier.Placement
	Table     func() *ring.Table
	Self      func() string
	Owners    Owners
	// Counter counts in this node's memory. Recalling is the same counter, but recalls lent counts
	// before it takes them back: it runs batches, and operations that take back.
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
	// Mark marks an answer of this node if its time can't be trusted.
	Mark func(res *twotier.Result)
}

// Router runs operations on the nodes that own their keys.
type Router struct {
	opt      Options
	messages sync.Pool // of *message
	waves    sync.Pool // of *wave
}

// New returns a router.
func New(opt Options) *Router {
	r := &Router{opt: opt}
	r.messages.New = func() any { return new(message) }
	r.waves.New = func() any { return new(wave) }
	return r
}
