package ownership

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Decider decides about partitions or does not. A syncer.Counter is one.
type Decider interface {
	// StartOwning has it decide about a partition from now on.
	StartOwning(partition int)
	// StopOwning ends that: operations on the partition are refused. What is pending is flushed as
	// ever.
	StopOwning(partition int)
}

// Counter is a Decider whose partitions can be handed over, see syncer.Counter.
type Counter interface {
	Decider
	// BeginHandoff makes a partition ready to be handed off, HandoffPage returns a part of it, and
	// FinishHandoff forgets it when all has arrived.
	BeginHandoff(ctx context.Context, partition int) error
	HandoffPage(partition int, cursor uint64,
		budget int) (h *syncer.Handoff, next uint64, err error)
	FinishHandoff(partition int) error
	// ImportHandoff takes over what another has handed off.
	ImportHandoff(h *syncer.Handoff)
}

// Peers asks the other nodes.
type Peers interface {
	// Ask puts a request to another node and fills in its response, if there is one. The error
	// wraps rpc.ErrUnreachable if the node can't be reached.
	Ask(ctx context.Context, to *ring.Member, request, response any) error
}

// Options configure a [Partitions]. All but the two flags are required.
type Options struct {
	// Partitions is how many there are.
	Partitions int
	// Alone is set for a node that is no part of a cluster: everything is its own.
	Alone bool
	// Suspended is set if nothing is decided until Resume is called.
	Suspended bool
	// Table is who should own what, Self this node.
	Table   func() *ring.Table
	Self    func() ring.Member
	Counter Counter
	Peers   Peers
	// InRedis reports whether the cluster counts in Redis: then nobody owns anything.
	InRedis func() bool
	// PrepareTime is how long other nodes may take to say what they have, beyond WaitTimeout: they
	// may be changing their mode.
	PrepareTime time.Duration
	// Go runs fn beside the caller, until it returns; its context is done when the node closes.
	Go func(fn func(ctx context.Context))
}

// Partitions is the partitions of a cluster as one node has them.
type Partitions struct {
	opt Options

	mu        sync.Mutex
	parts     []partition
	claimed   []bool        // being asked for, by one goroutine each
	changed   chan struct{} // closed when any phase changes; nil if nobody waits
	suspended bool          // the mode is changing, or is one that needs no owners
	moves     Moves         // so far
}

// partition is the state of one.
type partition struct {
	phase   phase
	since   time.Time
	offered time.Time
	// kept: this node decided about it when the mode began to change, and does again if that is
	// given up.
	kept bool
	// to is who takes it over if it is moving or given, and who decides until it hands it over if
	// it is incoming.
	to *ring.Member
}

// phase is what a node has to do with a partition.
type phase uint8

const (
	// foreign: another node decides about it.
	foreign phase = iota
	// incoming: it is this node's by the table; those that may have it are being asked.
	incoming
	// own: this node decides about it.
	own
	// outgoing: this node still decides about it, but by the table another should, and will come for
	// it.
	outgoing
	// moving: it is being made ready to be handed over.
	moving
	// given: another node has been told all, and has not said yet that it has everything.
	given
)

// How long a phase may take.
const (
	// WaitTimeout is how long operations may have to wait for a partition on its way to this node.
	// Then it begins with what the store has.
	WaitTimeout = 3 * time.Second
	// offerAfter is how long a node waits for the new owner of a partition to come for it before it
	// offers it.
	offerAfter = 300 * time.Millisecond
	// loseTimeout is how long a node keeps a partition that nobody comes for.
	loseTimeout = 5 * time.Second
	// givenTimeout is how long a node keeps what it handed over without hearing that it arrived.
	givenTimeout = 10 * time.Second
)

// New returns the partitions of a node that has none yet, or all if it is alone.
func New(opt Options) *Partitions {
	o := &Partitions{
		opt: opt, parts: make([]partition, opt.Partitions), claimed: make([]bool, opt.Partitions),
		suspended: opt.Suspended,
	}
	if opt.Alone && !o.suspended {
		for p := range o.parts {
			o.parts[p].phase = own
		}
	}
	return o
}

// exists reports whether there is a partition of this number: another node said so.
func (o *Partitions) exists(p int) bool { return p >= 0 && p < len(o.parts) }

// enterLocked changes the phase of a partition and wakes all who wait for one to change.
func (o *Partitions) enterLocked(p int, to phase) {
	s := &o.parts[p]
	*s = partition{phase: to, since: time.Now(), kept: s.kept, to: s.to}
	if to != moving && to != given {
		s.to = nil
	}
	o.wakeLocked()
}

// wakeLocked has all who wait look again.
func (o *Partitions) wakeLocked() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// letGoLocked gives up a partition that nobody has taken over in full: what is pending is flushed
// as ever.
func (o *Partitions) letGoLocked(p int) {
	o.opt.Counter.StopOwning(p)
	o.moves.LetGo++
	o.enterLocked(p, foreign)
}

// takeBackLocked has this node decide again about a partition that it was handing over.
func (o *Partitions) takeBackLocked(p int) {
	o.opt.Counter.StartOwning(p)
	o.moves.TakenBack++
	o.enterLocked(p, own)
}
