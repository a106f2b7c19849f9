package multiowner

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// How long reservations are kept.
const (
	// reserveTime is how long a reservation waits to be confirmed or undone. Then the node asks the
	// decider about it.
	reserveTime = time.Second
	// reserveLimit is how long the node keeps asking, and at least half of that if it begins late
	// because it stood still. Then the reservation is counted.
	reserveLimit = 10 * time.Second
	// doubtTime is how long the node keeps looking for the outcome after that, and how long other
	// nodes remember it.
	doubtTime = 10 * time.Minute
	// doubtPause is the wait between two questions about an acquire counted in doubt.
	doubtPause = time.Second
	// heardTime bounds the time until another owner of a key has the counts of this node: this node
	// has to store them, and the owner has to compare its memory with the store. An owner can't
	// take back counts that it does not have.
	heardTime = 15 * time.Second
	// askPause is the wait between two questions.
	askPause = 100 * time.Millisecond
	// leaveTime bounds how long a leaving node waits for the others to ask.
	leaveTime = 2 * time.Second
)

// OutcomeRequest asks the decider of an acquire, or the coordinator, for its outcome. If the
// acquire has not reached the decider yet, the decider will refuse it.
type OutcomeRequest struct {
	Acquire rpc.AcquireID
}

// OutcomeResponse is the answer to an [OutcomeRequest].
type OutcomeResponse struct {
	Outcome Outcome
}

// SettleRequest asks a node to settle all reservations that depend on a member that is about to
// leave and decides nothing any more. The answer comes once there are none. From then on the node
// makes no such reservations.
type SettleRequest struct {
	Decider string
	// Decided holds the member's decisions, by coordinator. If it is nil, ask the member.
	Decided map[string]Decided
}

// Outcome answers an [OutcomeRequest].
func (p *Participant) Outcome(q *OutcomeRequest) (*OutcomeResponse, error) {
	if q.Acquire.Coordinator == p.opt.Self() {
		return &OutcomeResponse{p.coordinated.find(q.Acquire.Number)}, nil
	}
	o, err := p.outcomes.find(q.Acquire, time.Now())
	return &OutcomeResponse{o}, err
}

// Run settles reservations that are neither confirmed nor undone in time, until ctx is done.
func (p *Participant) Run(ctx context.Context) {
	for retry.Pause(ctx, reserveTime/4) {
		now := time.Now()
		for _, r := range p.reservations.takeOverdue(now) {
			p.opt.Go(func(ctx context.Context) { p.settleReservation(ctx, r) })
		}
		p.outcomes.expire(now)
		p.reservations.expire(now)
		p.coordinated.expire(now)
	}
}

// settleReservation confirms or undoes a reservation, following its decider.
func (p *Participant) settleReservation(ctx context.Context, r *reservation) {
	outcome, err := p.learnOutcome(ctx, r)
	if err != nil {
		return
	}
	p.busy.Add(1) // before it is closed, see Idle
	defer p.busy.Add(-1)
	switch outcome {
	case NotCarriedOut:
		// If it was counted in doubt meanwhile, undo has to report that to the coordinator.
		if p.reservations.close(r.id) != nil {
			p.opt.Counter.Undo(&r.op)
		}
	case CarriedOut:
		if p.reservations.close(r.id) != nil {
			p.countReservation(ctx, r)
		}
	default:
		if p.countInDoubt(ctx, r.id) {
			p.opt.Go(func(ctx context.Context) { p.resolveDoubt(ctx, r) })
		}
	}
}

// countReservation counts a closed reservation.
func (p *Participant) countReservation(ctx context.Context, r *reservation) {
	r.op.Ack = twotier.AckMemory
	if err := p.opt.Counter.Confirm(ctx, &r.op); err != nil {
		p.opt.Logger.Error("a reservation could not be confirmed", "error", err)
	}
}

// learnOutcome asks for the outcome of an acquire until it is known. If the nodes that could know
// it have died, or could not be reached for long enough, the outcome is Forgotten: the reservation
// is counted, because the acquire may have been carried out. The error is ctx's.
func (p *Participant) learnOutcome(ctx context.Context, r *reservation) (Outcome, error) {
	for began := time.Now(); ; {
		switch o, err := p.askOutcome(ctx, r); {
		case err == nil && (o == CarriedOut || o == NotCarriedOut):
			return o, nil
		case err == nil && o == Forgotten,
			elapsed.Between(r.since, time.Now()) > reserveLimit &&
				elapsed.Between(began, time.Now()) > reserveLimit/2:
			p.opt.Logger.Warn("nobody knows whether an acquire over several nodes was carried "+
				"out: counting it", "decider", r.decider)
			return Forgotten, nil
		}
		if !retry.Pause(ctx, askPause) {
			return Undecided, ctx.Err()
		}
	}
}

// askOutcome asks the decider of an acquire once. If it is gone or has forgotten the outcome,
// askOutcome turns to the coordinator, which may know that its message never reached the decider.
// The outcome is Forgotten if neither knows it, or both are gone.
func (p *Participant) askOutcome(ctx context.Context, r *reservation) (Outcome, error) {
	if o := p.reservations.departedOutcome(r.decider, r.id); o == CarriedOut || o == NotCarriedOut {
		return o, nil
	}
	o, t := Forgotten, p.opt.Table()
	for _, name := range []string{r.decider, r.id.Coordinator} {
		at := t.Find(name)
		if at < 0 || name == r.id.Coordinator && r.abandoned {
			continue
		}
		var err error
		if o, err = p.askMember(ctx, t.Member(at), r.id); err != nil || o != Forgotten {
			return o, err
		}
	}
	return o, nil
}

func (p *Participant) askMember(
	ctx context.Context, m *ring.Member, id rpc.AcquireID,
) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	a := &OutcomeResponse{}
	err := p.opt.Peers.Ask(ctx, m, &OutcomeRequest{id}, a)
	return a.Outcome, err
}

// Settle answers a [SettleRequest].
func (p *Participant) Settle(ctx context.Context, q *SettleRequest) error {
	for {
		list := p.reservations.beginDeparture(q, time.Now())
		if len(list) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		var done sync.WaitGroup
		for _, r := range list {
			done.Go(func() { p.settleReservation(ctx, r) })
		}
		done.Wait()
	}
}

// Leave ends deciding on this node, which is about to stop, and has the other members settle their
// reservations that depend on it. It sends its decisions along, since some members may not get an
// answer from it in time.
func (p *Participant) Leave(ctx context.Context) {
	p.outcomes.stopDeciding()
	for by := time.Now().Add(leaveTime); p.outcomes.isDeciding() && time.Now().Before(by); {
		if !retry.Pause(ctx, askPause/10) {
			break
		}
	}
	q := &SettleRequest{Decider: p.opt.Self(), Decided: p.outcomes.leavingDecisions()}
	rpc.Broadcast(ctx, p.opt.Table(), leaveTime, func(ctx context.Context, m *ring.Member) {
		_ = p.opt.Peers.Ask(ctx, m, q, nil) // unreachable members count their reservations
	})
}

// This file handles acquires of temporarily unknown outcome: the decider stands still, or can't be
// reached. Their reservations are counted, so that no limit is exceeded, and taken back if the
// acquires turn out not to have been carried out.

// countInDoubt counts a reservation of unknown outcome. It reports false if the reservation is no
// longer open.
func (p *Participant) countInDoubt(ctx context.Context, id rpc.AcquireID) bool {
	p.busy.Add(1) // before it is closed, see Idle
	defer p.busy.Add(-1)
	r := p.reservations.closeInDoubt(id, time.Now())
	if r != nil {
		p.countReservation(ctx, r)
	}
	return r != nil
}

// resolveDoubt waits for the outcome of an acquire that was counted in doubt, and takes the counts
// back if it was not carried out.
func (p *Participant) resolveDoubt(ctx context.Context, r *reservation) {
	switch outcome, err := p.awaitOutcome(ctx, r); {
	case err != nil:
	case outcome == NotCarriedOut:
		p.undoDoubt(ctx, r.id)
	default:
		p.reservations.endDoubt(r.id)
	}
}

// undoDoubt takes back the counts of an acquire in doubt that was not carried out, if there are any
// left.
func (p *Participant) undoDoubt(ctx context.Context, id rpc.AcquireID) {
	p.takingBack.Add(1) // before the doubt ends, see InDoubt
	defer p.takingBack.Add(-1)
	if counted := p.reservations.endDoubt(id); counted != nil {
		p.takeBack(ctx, counted)
	}
}

var errForgotten = errors.New("nobody has learnt what has become of the acquire")

// awaitOutcome asks for the outcome of an acquire until a node knows it. The decider may have stood
// still, and still know.
func (p *Participant) awaitOutcome(ctx context.Context, r *reservation) (Outcome, error) {
	for elapsed.Between(r.since, time.Now()) < doubtTime {
		if !retry.Pause(ctx, doubtPause) {
			return Forgotten, ctx.Err()
		}
		if o, err := p.askOutcome(ctx, r); err == nil && (o == CarriedOut || o == NotCarriedOut) {
			return o, nil
		}
	}
	return Forgotten, errForgotten
}

// takeBack takes back the counts of an acquire in doubt: at once while this node owns the keys and
// can reach the store. Otherwise another node may own them, which can't take back counts that it
// has not received yet. Values stay: they may have been added before.
func (p *Participant) takeBack(ctx context.Context, counted *twotier.Op) {
	var later []*twotier.Op
	for _, c := range counted.Checks {
		if c.N == 0 || c.IsValues() {
			continue
		}
		c.N = -c.N
		op := &twotier.Op{Kind: twotier.Add, TS: counted.TS, Ack: twotier.AckMemory,
			Checks: []twotier.Check{c}}
		if c.IsLease() {
			op.Kind, op.TS = twotier.Acquire, 0
			op.Checks[0].Limits = []twotier.Limit{{Window: 1}}
		}
		err := p.takeBackHere(ctx, op)
		if err != nil && !errors.Is(err, twotier.ErrUnknownOutcome) {
			later = append(later, op)
		}
	}
	if len(later) == 0 || !retry.Pause(ctx, heardTime) {
		return
	}
	var done sync.WaitGroup
	for _, op := range later {
		done.Go(func() { p.takeBackAtOwner(ctx, op) })
	}
	done.Wait()
}

func (p *Participant) takeBackHere(ctx context.Context, op *twotier.Op) error {
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	var res [1]twotier.Result
	p.opt.Counter.DoAll(ctx, []twotier.Op{*op}, res[:])
	return res[0].Err
}

// takeBackAtOwner has the owner of a key take counts back, and repeats attempts that certainly
// failed.
func (p *Participant) takeBackAtOwner(ctx context.Context, op *twotier.Op) {
	for by := time.Now().Add(doubtTime); ; {
		once, cancel := context.WithTimeout(ctx, reserveTime)
		err := p.opt.TakeBack(once, op)
		cancel()
		if err == nil {
			return
		}
		if errors.Is(err, twotier.ErrUnknownOutcome) || time.Now().After(by) ||
			!retry.Pause(ctx, doubtPause) {
			p.opt.Logger.Warn("an acquire over several nodes was not carried out, but its counts "+
				"can't be taken back", "error", err)
			return
		}
	}
}

// coordinatedOutcomes holds the outcomes of acquires coordinated by this node that did not reach
// all owners. The owners may ask for them.
type coordinatedOutcomes struct {
	mu       sync.Mutex
	byNumber map[uint64]coordinatedOutcome
}

type coordinatedOutcome struct {
	outcome Outcome
	at      time.Time
}

// set records an outcome. Forgotten stands for an outcome that this node does not know either.
// Without room the outcome is dropped, and owners that ask get Undecided.
func (c *coordinatedOutcomes) set(number uint64, o Outcome, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.byNumber[number]; known || len(c.byNumber) < maxEnded {
		c.byNumber[number] = coordinatedOutcome{o, now}
	}
}

// find returns the outcome of an acquire. An unlisted acquire may be in progress.
func (c *coordinatedOutcomes) find(number uint64) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, known := c.byNumber[number]; known {
		return o.outcome
	}
	return Undecided
}

// expire forgets outcomes that no owner asks for any more.
func (c *coordinatedOutcomes) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.byNumber, func(_ uint64, o coordinatedOutcome) bool {
		return elapsed.Between(o.at, now) > doubtTime
	})
}
