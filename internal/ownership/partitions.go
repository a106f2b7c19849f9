package ownership

import (
	"context"
	"maps"
	"sync"
	"time"

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

// Peers sends requests to the other nodes.
type Peers interface {
	// Ask sends a request to another node and fills in its response, if there is one. The error
	// wraps rpc.ErrUnreachable if the node can't be reached.
	Ask(ctx context.Context, to *ring.Member, request, response any) error
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
	Peers   Peers
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
	moves     Moves                // so far
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

// Phases is the number of partitions in each phase on one node. All other partitions are foreign.
type Phases struct {
	// Own are decided by this node. Incoming are on their way to this node.
	Own, Incoming int
	// Outgoing are still decided by this node although the table assigns them to another. Moving
	// are being handed over.
	Outgoing, Moving int
}

// HeldCount is the number of partitions whose state is on this node.
func (p Phases) HeldCount() int { return p.Own + p.Outgoing + p.Moving }

// Moves is the number of partitions that changed hands since the node started, by kind.
type Moves struct {
	// Taken received their state from another node; Given were sent to another node.
	Taken, Given int64
	// FromStore started from the state in the store because no node handed them over.
	FromStore int64
	// Abandoned were given up without a complete handover, so the next owner starts from the store.
	Abandoned int64
	// TakenBack were to be handed over but stayed.
	TakenBack int64
}

// HeldCount returns the number of partitions whose state is on this node.
func (o *Partitions) HeldCount() (count int) {
	at, _ := o.Figures()
	return at.HeldCount()
}

// Figures returns the number of partitions in each phase, and the number that have changed hands.
func (o *Partitions) Figures() (at Phases, moves Moves) {
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

// FollowTable brings the phases in line with the table, and starts to take over the partitions that
// the table newly assigns to this node. Call it when there is a new table, and periodically: it
// also ends phases that take too long.
func (o *Partitions) FollowTable() {
	t := o.opt.Table()
	gained, offers := o.applyTable(t, time.Now())
	if len(gained) > 0 {
		owners := o.previousOwners(t, gained)
		o.spawn(context.Background(), func(ctx context.Context) {
			o.takeOverFromPrevious(ctx, owners, gained)
		})
	}
	for at, parts := range offers {
		o.opt.Go(func(ctx context.Context) { o.offer(ctx, t.Member(at), parts) })
	}
}

// applyTable changes phases according to a table. It returns the partitions to take over, and the
// partitions to offer by the index of their new owner.
func (o *Partitions) applyTable(t *ring.Table, now time.Time) (gained []int, offers map[int][]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return nil, nil
	}
	if t != o.table {
		o.table, o.before = t, o.table
		maps.DeleteFunc(o.claims, func(name string, _ time.Time) bool { return t.Find(name) < 0 })
	}
	offers = map[int][]int{}
	for p := range o.parts {
		s := &o.parts[p]
		switch assigned := t.OwnedBySelf(p); {
		case assigned && s.phase == foreign && !o.claimed[p]:
			o.enterLocked(p, incoming)
			o.claimed[p] = true
			gained = append(gained, p)
		case assigned && s.phase == outgoing:
			o.enterLocked(p, own)
		case !assigned && s.phase == own:
			o.enterLocked(p, outgoing)
		case !assigned && s.phase == incoming:
			o.enterLocked(p, foreign)
		case s.phase == outgoing:
			o.reviewOutgoingLocked(p, t, now, offers)
		case s.phase == given:
			o.reviewGivenLocked(p, t, now)
		}
	}
	return gained, offers
}

// reviewOutgoingLocked offers a partition that its new owner does not claim. In the end it lets the
// partition go, unless the new owner is looking for the partition's holder or busy claiming others.
// Pending counts are still flushed, and the new owner finds them in the store.
func (o *Partitions) reviewOutgoingLocked(
	p int, t *ring.Table, now time.Time, offers map[int][]int,
) {
	s := &o.parts[p]
	switch {
	case now.Sub(s.since) > abandonTimeout && now.Sub(s.sought) > abandonTimeout &&
		now.Sub(o.claims[t.Member(t.Owner(p)).Name]) > abandonTimeout:
		o.abandonLocked(p)
	case now.Sub(s.since) > offerAfter && now.Sub(s.offered) > time.Second:
		s.offered = now
		offers[t.Owner(p)] = append(offers[t.Owner(p)], p)
	}
}

// reviewGivenLocked takes a partition back if the node that received it is gone, or has not
// confirmed for too long that everything arrived. Rounds that both nodes send to the store count
// once.
func (o *Partitions) reviewGivenLocked(p int, t *ring.Table, now time.Time) {
	s := &o.parts[p]
	if t.Find(s.to.Name) >= 0 && now.Sub(s.since) < givenTimeout {
		return
	}
	if t.OwnedBySelf(p) {
		o.takeBackLocked(p)
		return
	}
	if now.Sub(s.since) < givenTimeout {
		return // the next owner may claim it
	}
	o.abandonLocked(p)
}
