package hotkeys

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

const (
	// interval is how often an owner reviews rates and renews leases.
	interval = time.Second
	// leaseTime is how long a node may count a key that it does not own.
	leaseTime = 3 * time.Second
	// maxGrants bounds the keys that an owner lets others count, maxLeases the keys of others that
	// a node counts.
	maxGrants = 64
	maxLeases = 1024
	// coolAfter is the number of consecutive reviews below half the rate after which leases are not
	// renewed.
	coolAfter = 3
)

// Counter counts keys that several nodes count. A syncer.Counter is one.
type Counter interface {
	// Share starts or ends counting a key that others count too. It fails to start while counts
	// can't meet in the store, and never fails to end.
	Share(ns, key []byte, on bool) error
	// StaleAfter is how long it takes at most until others see what was counted.
	StaleAfter() time.Duration
}

// Peers asks the other nodes.
type Peers interface {
	// Ask sends a request to another node and fills in its response.
	Ask(ctx context.Context, to *ring.Member, request, response any) error
}

// Options configure a [Tracker]. All but Rate and Logger are required.
type Options struct {
	// Rate is how many operations a second other nodes may forward on one key before it is hot. 0
	// means that no key ever is.
	Rate float64
	// Placement assigns keys to partitions, Table partitions to members. Self is this node.
	Placement syncer.Placement
	Table     func() *ring.Table
	Self      func() ring.Member
	Counter   Counter
	Peers     Peers
	// Paused reports whether no leases may be granted or renewed because the cluster counts in
	// Redis.
	Paused func() bool
	// Logger receives keys that become hot or are no longer hot. Default: none.
	Logger *slog.Logger
}

// Tracker tracks hot keys: those of this node that others count, and those of others that this node
// counts.
type Tracker struct {
	opt    Options
	heat   detector
	leased atomic.Int64 // len(leases), for the hot path

	mu     sync.RWMutex
	grants map[string]*grant // keys of this node that others count too
	leases map[string]*lease // keys of other nodes that this one counts
}

// New returns a tracker without hot keys.
func New(opt Options) *Tracker {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	return &Tracker{opt: opt, grants: map[string]*grant{}, leases: map[string]*lease{}}
}

// Run grants, renews and ends leases until ctx is done.
func (t *Tracker) Run(ctx context.Context) {
	for last := time.Now(); retry.Pause(ctx, interval); {
		t.endLeases()
		now := time.Now()
		t.review(ctx, now.Sub(last))
		last = now
	}
}

// Sizes returns how many of this node's keys other nodes count, and how many of other nodes' keys
// this node counts.
func (t *Tracker) Sizes() (granted, leased int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.grants), len(t.leases)
}

// owns reports whether this node owns a key.
func (t *Tracker) owns(table *ring.Table, k *Key) bool {
	return table.OwnedBySelf(t.opt.Placement.Of(k.NS, k.Key))
}

// unshareLocked ends the sharing of a key that is neither granted nor leased any more.
func (t *Tracker) unshareLocked(name string, k *Key) {
	if t.grants[name] == nil && t.leases[name] == nil {
		_ = t.opt.Counter.Share(k.NS, k.Key, false) // only starting to share can fail
	}
}
