package routing

import (
	"context"
	"sync"

	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Counter counts in this node's memory, see syncer.Counter.
type Counter interface {
	Do(ctx context.Context, op *syncer.Op, res *syncer.Result) error
	DoAll(ctx context.Context, ops []syncer.Op, res []syncer.Result)
}

// Peers runs tasks, or groups of operations of a batch, on other nodes at the same time, see
// node.Peers. Its errors are the ones of package rpc.
type Peers interface {
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []syncer.Result)
	DoAll(
		ctx context.Context, groups []rpc.Group, ops []syncer.Op, res []syncer.Result,
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
	Shared(check *syncer.Check) bool
	Observe(ops []syncer.Op)
}

// Refusals remembers refusals by other nodes, see refusals.Cache.
type Refusals interface {
	Note(op *syncer.Op, res *syncer.Result)
	Refuse(op *syncer.Op, res *syncer.Result) bool
	Forget(check *syncer.Check)
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
	Placement syncer.Placement
	Table     func() *ring.Table
	Self      func() string
	Owners    Owners
	Counter   Counter
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
	Mark func(res *syncer.Result)
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
