package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"twotier/ring"
	"twotier/syncer"
)

// phase is what a node has to do with a partition.
type phase uint8

const (
	// foreign: another node decides about it.
	foreign phase = iota
	// gaining: the table says that it is this node's; those that may have it are being asked.
	gaining
	// own: this node decides about it.
	own
	// losing: this node still decides about it, but the table says that another should: it will come for it.
	losing
	// moving: it is being made ready to be handed over.
	moving
	// given: another node has been told all, and has not said yet that it has everything.
	given
)

// How long a phase may take.
const (
	// offerAfter is how long a node waits for the new owner of a partition to come for it before it offers it.
	offerAfter = 300 * time.Millisecond
	// gainTimeout is how long requests may have to wait for a partition on its way to this node. Then it begins with what the store has.
	gainTimeout = 3 * time.Second
	// loseTimeout is how long a node keeps a partition that nobody comes for.
	loseTimeout = 5 * time.Second
	// givenTimeout is how long a node keeps what it handed over without hearing that it arrived.
	givenTimeout = 10 * time.Second
	// tenancyTick is how often all that is looked after.
	tenancyTick = 100 * time.Millisecond
)

// tenure is the state of one partition.
type tenure struct {
	phase   phase
	since   time.Time
	offered time.Time
	kept    bool         // this node decided about it when the mode began to change, and does again if that is given up
	to      *ring.Member // moving, given: who takes it over; gaining: who decides until it hands it over
}

// tenancy keeps which partitions are this node's, and moves them. The counter knows the same in a simpler form: it refuses
// operations on what it does not own, under the lock of the partition, so that no decision slips in between.
type tenancy struct {
	n *Node

	mu        sync.Mutex
	parts     []tenure
	claimed   []bool        // being asked for, by one goroutine each
	table     *ring.Table   // that was applied last
	turned    chan struct{} // closed when any phase changes; nil if nobody waits
	suspended bool          // the mode is changing, or is one that needs no owners
	moves     Moves         // so far

	signal chan struct{} // holds one: there may be a new table
}

// newTenancy returns the tenancy of a node that has nothing yet, or of a lone one, whose own everything is.
func newTenancy(n *Node, partitions int) *tenancy {
	y := &tenancy{n: n, parts: make([]tenure, partitions), claimed: make([]bool, partitions), signal: make(chan struct{}, 1)}
	for p := range y.parts {
		if n.opt.Ring == nil && n.opt.Mode == ModeTwoTier {
			y.parts[p].phase = own
		}
	}
	y.suspended = n.opt.Mode == ModeRedis
	return y
}

// poke has the table looked at.
func (y *tenancy) poke() {
	select {
	case y.signal <- struct{}{}:
	default:
	}
}

// run follows the table until ctx is done.
func (y *tenancy) run(ctx context.Context) {
	ticker := time.NewTicker(tenancyTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-y.signal:
		case <-ticker.C:
		}
		y.follow(ctx)
		y.n.modes.Follow()
	}
}

// follow brings the phases in line with the table, and asks for what was gained.
func (y *tenancy) follow(ctx context.Context) {
	t := y.n.table()
	y.mu.Lock()
	if y.suspended {
		y.mu.Unlock()
		return
	}
	y.table = t
	var gained []int
	offers := map[int][]int{} // by position of the new owner
	now := time.Now()
	for p := range y.parts {
		s := &y.parts[p]
		switch mine := t.Mine(p); {
		case mine && s.phase == foreign && !y.claimed[p]:
			y.turnLocked(p, gaining)
			y.claimed[p] = true
			gained = append(gained, p)
		case mine && s.phase == losing:
			y.turnLocked(p, own)
		case !mine && s.phase == own:
			y.turnLocked(p, losing)
		case !mine && s.phase == gaining:
			y.turnLocked(p, foreign)
		case s.phase == losing:
			y.loseLocked(p, t, now, offers)
		case s.phase == given:
			y.missLocked(p, t, now)
		}
	}
	y.mu.Unlock()
	if len(gained) > 0 {
		y.n.spawn(func() { y.gain(ctx, t, gained) })
	}
	for at, parts := range offers {
		y.n.spawn(func() { y.offer(ctx, t.Member(at), parts) })
	}
}

// loseLocked offers a partition that its new owner does not come for, and in the end lets go of it: what is pending is flushed
// as ever, and the new owner finds it in the store.
func (y *tenancy) loseLocked(p int, t *ring.Table, now time.Time, offers map[int][]int) {
	s := &y.parts[p]
	switch {
	case now.Sub(s.since) > loseTimeout:
		y.letGoLocked(p)
	case now.Sub(s.since) > offerAfter && now.Sub(s.offered) > time.Second:
		s.offered = now
		offers[t.Owner(p)] = append(offers[t.Owner(p)], p)
	}
}

// missLocked takes a partition back if the node that was told about it is gone, or does not say for long that it has everything.
// What both send to the store is counted once.
func (y *tenancy) missLocked(p int, t *ring.Table, now time.Time) {
	s := &y.parts[p]
	if t.Find(s.to.Name) >= 0 && now.Sub(s.since) < givenTimeout {
		return
	}
	if t.Mine(p) {
		y.takeBackLocked(p)
		return
	}
	if now.Sub(s.since) < givenTimeout {
		return // the next owner may come for it
	}
	y.letGoLocked(p)
}

// letGoLocked gives up a partition that nobody has taken over in full: what is pending is flushed as ever.
func (y *tenancy) letGoLocked(p int) {
	y.n.opt.Counter.Disown(p)
	y.moves.LetGo++
	y.turnLocked(p, foreign)
}

// takeBackLocked has this node decide again about a partition that it was handing over.
func (y *tenancy) takeBackLocked(p int) {
	y.n.opt.Counter.Own(p)
	y.moves.TakenBack++
	y.turnLocked(p, own)
}

// turnLocked changes the phase of a partition and wakes all who wait for one to change.
func (y *tenancy) turnLocked(p int, to phase) {
	s := &y.parts[p]
	*s = tenure{phase: to, since: time.Now(), kept: s.kept, to: s.to}
	if to != moving && to != given {
		s.to = nil
	}
	y.wakeLocked()
}

// wakeLocked has all who wait look again.
func (y *tenancy) wakeLocked() {
	if y.turned != nil {
		close(y.turned)
		y.turned = nil
	}
}

// locate says who decides about a partition: nil stands for this node. It waits while that is open, but no longer than
// gainTimeout or ctx.
func (y *tenancy) locate(ctx context.Context, p int) (to *ring.Member, err error) {
	changed := false
	err = y.await(ctx, func() (known bool) {
		if changed = y.n.inRedis(); changed {
			return true
		}
		s := &y.parts[p]
		switch to = s.to; {
		case y.suspended, s.phase == moving:
			return false
		case s.phase == foreign:
			to = y.ownerLocked(p)
			return to != nil // else it will be gained
		case s.phase == gaining:
			return to != nil
		}
		return true
	})
	switch {
	case changed:
		return nil, errModeChanged
	case err != nil:
		return nil, fmt.Errorf("%w: partition %d is on its way to this node", syncer.ErrUnavailable, p)
	}
	return to, nil
}

// decides reports whether a member decides about a partition, as far as this node knows.
func (y *tenancy) decides(m *ring.Member, p int) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	to := y.parts[p].to
	if y.parts[p].phase == foreign {
		to = y.ownerLocked(p)
	}
	return to != nil && to.Name == m.Name
}

// await waits until a condition holds, which is looked at under the lock whenever a phase changes, but no longer than gainTimeout or
// ctx.
func (y *tenancy) await(ctx context.Context, condition func() bool) error {
	timer := time.NewTimer(gainTimeout)
	defer timer.Stop()
	for {
		y.mu.Lock()
		if condition() {
			y.mu.Unlock()
			return nil
		}
		if y.turned == nil {
			y.turned = make(chan struct{})
		}
		turned := y.turned
		y.mu.Unlock()
		select {
		case <-turned:
		case <-timer.C:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ownerLocked is who owns a partition by the present table, nil if this node does.
func (y *tenancy) ownerLocked(p int) *ring.Member {
	t := y.n.table()
	if t.Mine(p) {
		return nil
	}
	return t.Member(t.Owner(p))
}

// held counts the partitions that this node decides about.
func (y *tenancy) held() (count int) {
	at, _ := y.figures()
	return at.held()
}

// figures returns how many partitions are in which phase, and what has been moved so far.
func (y *tenancy) figures() (at Phases, moves Moves) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for p := range y.parts {
		switch y.parts[p].phase {
		case own:
			at.Own++
		case gaining:
			at.Gaining++
		case losing:
			at.Losing++
		case moving, given:
			at.Moving++
		}
	}
	return at, y.moves
}

// settled reports whether every partition that the table gives to this node is its own, and no other.
func (y *tenancy) settled() bool {
	t := y.n.table()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.suspended {
		return true
	}
	for p := range y.parts {
		if want := t.Mine(p); want != (y.parts[p].phase == own) || !want && y.parts[p].phase != foreign {
			return false
		}
	}
	return true
}

// Resume has a node decide about what is its by the table, once nobody else does, and at once about what it decided about when a change of
// mode began that was given up: it may have counts that nobody else knows.
func (y *tenancy) Resume() {
	y.mu.Lock()
	y.suspended = false
	for p := range y.parts {
		if s := &y.parts[p]; s.kept {
			s.kept = false
			y.n.opt.Counter.Own(p)
			y.turnLocked(p, own)
		}
	}
	y.mu.Unlock()
	y.follow(y.n.run)
}

// Forget notes that all is in the store, and that the mode has changed: nothing is this node's before another any more.
func (y *tenancy) Forget() {
	y.mu.Lock()
	defer y.mu.Unlock()
	for p := range y.parts {
		y.parts[p].kept = false
	}
}

// Suspend ends all decisions of this node: every partition is foreign. Operations wait until Resume is called, or the mode
// has changed.
func (y *tenancy) Suspend() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.suspended = true
	for p := range y.parts {
		s := &y.parts[p]
		s.kept = s.kept || s.phase == own || s.phase == losing || s.phase == moving
		y.n.opt.Counter.Disown(p)
		y.turnLocked(p, foreign)
	}
}

// Wake has all who wait look again.
func (y *tenancy) Wake() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.wakeLocked()
}
