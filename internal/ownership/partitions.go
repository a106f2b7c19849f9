package ownership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Decider decides about partitions. syncer.Counter implements it.
type Decider interface {
	// StartOwning makes the counter decide about a partition.
	StartOwning(partition int)
	// StopOwning makes the counter refuse operations on a partition. Pending counts are still
	// flushed.
	StopOwning(partition int)
}

// Counter is a Decider whose partitions can be handed over, see syncer.Counter.
type Counter interface {
	Decider
	// BeginHandoff prepares a partition for a handoff, HandoffPage returns a part of it, and
	// FinishHandoff forgets the partition when everything has arrived. RestartHandoff follows
	// StopOwning if BeginHandoff may be called once more: nobody decides until then.
	BeginHandoff(ctx context.Context, partition int) error
	RestartHandoff(partition int)
	HandoffPage(partition int, cursor uint64,
		budget int) (h *syncer.Handoff, next uint64, err error)
	FinishHandoff(partition int) error
	// ImportHandoff takes over a partition that another counter handed off.
	ImportHandoff(h *syncer.Handoff)
	// SetBorrowingPaused stops or resumes the counting of keys borrowed from other counters.
	SetBorrowingPaused(on bool)
	// ForgetLoans forgets everything lent and borrowed, because the store has it.
	ForgetLoans()
	// Flush returns once the store has everything counted before the call, or with an error when
	// ctx is done.
	Flush(ctx context.Context) error
}

// Options configure [Partitions]. All fields except the two flags are required.
type Options struct {
	// Partitions is the number of partitions.
	Partitions int
	// Alone marks a node outside any cluster: it owns everything.
	Alone bool
	// Suspended starts the node without decisions, until Resume is called.
	Suspended bool
	// Table returns the table of owners, Self this node.
	Table   func() *ring.Table
	Self    func() ring.Member
	Counter Counter
	Peers   rpc.Asker
	// InRedis reports whether the cluster counts in Redis. Then no node owns a partition.
	InRedis func() bool
	// Go runs fn in the background; fn's context is done when the node closes.
	Go func(fn func(ctx context.Context))
}

// Partitions is a cluster's partitions as seen by one node.
type Partitions struct {
	opt Options

	mu        sync.Mutex
	parts     []partition
	claimed   []bool               // being claimed, by one goroutine each
	claims    map[string]time.Time // when each member last sent this node a claim
	changed   chan struct{}        // closed when any phase changes; nil if nobody waits
	suspended bool                 // the mode is changing, or needs no owners
	table     *ring.Table          // the table that the phases follow
	before    *ring.Table          // the previous table
	moves     cluster.Moves        // so far
	gifts     uint64               // the number of this node's last handoff
	// known is done once this node has stood still: replies received before are out of date. forget
	// ends it.
	known  context.Context
	forget context.CancelFunc
}

// partition is the state of one partition.
type partition struct {
	phase   phase
	since   time.Time
	offered time.Time
	rest    time.Time // the next handoff starts no earlier
	sought  time.Time // when its owner last looked for its holder
	// kept: this node decided about it when the mode began to change, and will again if the change
	// is aborted.
	kept bool
	// paused: the mode began to change while the partition was given. The other node may have
	// everything, or ask for it again from the first page.
	paused bool
	// to is, for moving and given, the member that takes the partition over; for incoming, the
	// member that decides until it hands the partition over.
	to *ring.Member
	// gift is the number of the last handoff that gave the partition away or brought it here, giver
	// the name of the member that gave it.
	gift  uint64
	giver string
}

// phase is the relation of a node to a partition.
type phase uint8

const (
	// foreign: another node decides about it.
	foreign phase = iota
	// incoming: the table assigns it to this node, which is looking for its holder or taking it
	// over.
	incoming
	// own: this node decides about it.
	own
	// outgoing: this node still decides about it, but the table assigns it to another node, which
	// will claim it.
	outgoing
	// moving: this node is preparing to hand it over.
	moving
	// given: another node receives its content, but has not confirmed yet that it has everything.
	given
)

// How long a phase may take.
const (
	// WaitTimeout bounds how long operations wait for a partition that is on its way to this node.
	// After that, the partition starts from the store.
	WaitTimeout = 3 * time.Second
	// offerAfter is how long a node waits for a claim by the new owner of a partition before it
	// offers the partition.
	offerAfter = 300 * time.Millisecond
	// abandonTimeout is how long a node keeps a partition whose new owner claims nothing.
	abandonTimeout = 5 * time.Second
	// givenTimeout is how long a node keeps a partition that it handed over, without confirmation
	// that it arrived.
	givenTimeout = 10 * time.Second
)

// New returns the partitions of a node, which owns none yet, or all of them if it is alone.
func New(opt Options) *Partitions {
	o := &Partitions{
		opt: opt, parts: make([]partition, opt.Partitions), claimed: make([]bool, opt.Partitions),
		claims: map[string]time.Time{}, suspended: opt.Suspended,
	}
	o.known, o.forget = context.WithCancel(context.Background())
	if opt.Alone && !o.suspended {
		for p := range o.parts {
			o.parts[p].phase = own
		}
	}
	return o
}

// exists reports whether a partition number received from another node is valid.
func (o *Partitions) exists(p int) bool { return p >= 0 && p < len(o.parts) }

// enterLocked changes the phase of a partition and wakes all waiters.
func (o *Partitions) enterLocked(p int, to phase) {
	s := &o.parts[p]
	*s = partition{phase: to, since: time.Now(), rest: s.rest, kept: s.kept, to: s.to,
		gift: s.gift, giver: s.giver}
	if to != moving && to != given {
		s.to = nil
	}
	o.wakeLocked()
}

// wakeLocked makes all waiters check their condition again.
func (o *Partitions) wakeLocked() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// abandonLocked gives up a partition that no node has taken over completely. Its pending counts are
// still flushed.
func (o *Partitions) abandonLocked(p int) {
	o.opt.Counter.StopOwning(p)
	o.moves.Abandoned++
	o.enterLocked(p, foreign)
}

// takeBackLocked makes this node decide again about a partition that it was handing over.
func (o *Partitions) takeBackLocked(p int) {
	o.opt.Counter.StartOwning(p)
	o.moves.TakenBack++
	o.enterLocked(p, own)
}

// HeldCount returns the number of partitions whose state is on this node.
func (o *Partitions) HeldCount() (count int) {
	at, _ := o.Figures()
	return at.HeldCount()
}

// Figures returns the number of partitions in each phase, and the number that have changed hands.
func (o *Partitions) Figures() (at cluster.Phases, moves cluster.Moves) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.parts {
		switch o.parts[p].phase {
		case own:
			at.Own++
		case incoming:
			at.Incoming++
		case outgoing:
			at.Outgoing++
		case moving, given:
			at.Moving++
		}
	}
	return at, o.moves
}

// IsSettled reports whether this node owns exactly the partitions that the table assigns to it.
func (o *Partitions) IsSettled() bool {
	t := o.opt.Table()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return true
	}
	for p := range o.parts {
		phase, want := o.parts[p].phase, t.OwnedBySelf(p)
		if want != (phase == own) || !want && phase != foreign {
			return false
		}
	}
	return true
}

// ErrInRedis means that the cluster counts in Redis, so no node decides about a partition.
var ErrInRedis = errors.New("the cluster counts in Redis")

// Locate returns the member that currently decides about a partition, nil for this node. If there
// is none, Locate waits for at most [WaitTimeout] or ctx; then the error wraps
// twotier.ErrUnavailable. The error is [ErrInRedis] if the cluster counts in Redis.
func (o *Partitions) Locate(ctx context.Context, p int) (to *ring.Member, err error) {
	inRedis := false
	err = o.await(ctx, func() (known bool) {
		if inRedis = o.opt.InRedis(); inRedis {
			return true
		}
		to, known = o.locateLocked(p)
		return known
	})
	switch {
	case inRedis:
		return nil, ErrInRedis
	case err != nil:
		return nil, fmt.Errorf("%w: partition %d is on its way to this node",
			twotier.ErrUnavailable, p)
	}
	return to, nil
}

// locateLocked returns the member that decides about a partition, nil for this node, and whether it
// is known.
func (o *Partitions) locateLocked(p int) (m *ring.Member, known bool) {
	s := &o.parts[p]
	switch {
	case o.suspended, s.phase == moving:
		return nil, false
	case s.phase == foreign:
		m = o.ownerLocked(p)
		return m, m != nil // if nil, FollowTable will take the partition over
	case s.phase == incoming:
		return s.to, s.to != nil
	}
	return s.to, true
}

// Decider returns the other member that decides about a partition, or nil if this node decides or
// the decider is unknown.
func (o *Partitions) Decider(p int) *ring.Member {
	if o.opt.InRedis() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	to, known := o.locateLocked(p)
	if !known {
		return nil
	}
	return to
}

// DecidedBy reports whether, in this node's view, m decides about a partition.
func (o *Partitions) DecidedBy(m *ring.Member, p int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := o.parts[p].to
	if o.parts[p].phase == foreign {
		to = o.ownerLocked(p)
	}
	return to != nil && to.Name == m.Name
}

// ownerLocked returns the owner of a partition by the current table, or nil if it is this node.
func (o *Partitions) ownerLocked(p int) *ring.Member {
	t := o.opt.Table()
	if t.OwnedBySelf(p) {
		return nil
	}
	return t.Member(t.Owner(p))
}

// await waits until a condition holds, for at most WaitTimeout or ctx. It checks the condition
// under the lock whenever a phase changes.
func (o *Partitions) await(ctx context.Context, condition func() bool) error {
	timer := time.NewTimer(WaitTimeout)
	defer timer.Stop()
	for {
		o.mu.Lock()
		if condition() {
			o.mu.Unlock()
			return nil
		}
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
