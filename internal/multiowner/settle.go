package multiowner

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// How long reservations are kept.
const (
	// reserveTime is how long a reservation waits to be confirmed or undone. Then the node asks the
	// decider about it.
	reserveTime = time.Second
	// reserveLimit is how long the node keeps asking, and at least half of that if it begins to ask
	// late because it stood still. Then what is reserved is counted.
	reserveLimit = 10 * time.Second
	// doubtTime is how long the node looks out for somebody who knows the outcome after that, and
	// for how long those who may be asked remember it.
	doubtTime = 10 * time.Minute
	// doubtPause is the wait between two questions about what is counted.
	doubtPause = time.Second
	// heardTime is how long it may take until another owner of a key knows the counts of this node:
	// for this node to store them, and for the owner to compare its memory with the store. An owner
	// can't take back counts that it does not know.
	heardTime = 15 * time.Second
	// askPause is the wait between two questions.
	askPause = 100 * time.Millisecond
	// leaveTime bounds how long a node that leaves waits for the others to ask.
	leaveTime = 2 * time.Second
)

// OutcomeRequest asks the decider of an acquire what has become of it, or the coordinator. If the
// decider has not heard of the acquire, it will refuse it.
type OutcomeRequest struct {
	Acquire rpc.AcquireID
}

// OutcomeResponse is the answer to an [OutcomeRequest].
type OutcomeResponse struct {
	Outcome Outcome
}

// SettleRequest asks a node to settle all reservations that depend on a member, which is about to
// leave and decides nothing any more. The answer comes once there are none. The node makes no
// others from then on.
type SettleRequest struct {
	Decider string
	// Decided is what the member has decided, by coordinator. If it is nil, ask the member.
	Decided map[string]Decided
}

// Outcome answers an [OutcomeRequest].
func (p *Participant) Outcome(q *OutcomeRequest) (*OutcomeResponse, error) {
	if q.Acquire.Coordinator == p.opt.Self() {
		return &OutcomeResponse{p.verdicts.find(q.Acquire.Number)}, nil
	}
	o, err := p.outcomes.find(q.Acquire, time.Now())
	return &OutcomeResponse{o}, err
}

// Run settles reservations that nobody confirms or undoes, until ctx is done.
func (p *Participant) Run(ctx context.Context) {
	ticker := time.NewTicker(reserveTime / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, r := range p.reservations.overdue(now) {
				p.opt.Go(func(ctx context.Context) { p.settle(ctx, r) })
			}
			p.outcomes.age(now)
			p.reservations.age(now)
			p.verdicts.age(now)
		}
	}
}

// settle confirms or undoes a reservation as its decider says.
func (p *Participant) settle(ctx context.Context, r *reservation) {
	outcome, err := p.learn(ctx, r)
	if err != nil {
		return
	}
	p.busy.Add(1) // before it is closed, see Idle
	defer p.busy.Add(-1)
	switch outcome {
	case NotCarriedOut:
		// That it was counted in doubt meanwhile is for the coordinator to be told, see undo.
		if p.reservations.close(r.id) {
			p.opt.Counter.Undo(r.id.String())
		}
	case CarriedOut:
		if p.reservations.close(r.id) {
			p.count(ctx, r.id)
		}
	default:
		if p.countInDoubt(ctx, r) {
			p.opt.Go(func(ctx context.Context) { p.reconsider(ctx, r) })
		}
	}
}

// count counts a reservation that was closed.
func (p *Participant) count(ctx context.Context, id rpc.AcquireID) {
	if err := p.opt.Counter.Confirm(ctx, id.String(), syncer.AckMemory); err != nil {
		p.opt.Logger.Error("a reservation could not be confirmed", "error", err)
	}
}

// learn asks for the outcome of an acquire until it is known. If those who could know it have died,
// or have not been reached for long enough, the outcome is Forgotten: it is counted, because it may
// have been carried out. The error is that of ctx.
func (p *Participant) learn(ctx context.Context, r *reservation) (Outcome, error) {
	for began := time.Now(); ; {
		switch o, err := p.ask(ctx, r); {
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

// ask asks the decider of an acquire once. If it is gone or has forgotten the outcome, the
// coordinator is asked, which may know that its message never reached the decider. The outcome is
// Forgotten if neither knows it, or none is there.
func (p *Participant) ask(ctx context.Context, r *reservation) (Outcome, error) {
	if o := p.reservations.departed(r.decider, r.id); o == CarriedOut || o == NotCarriedOut {
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
		list := p.reservations.leave(q, time.Now())
		if len(list) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		var done sync.WaitGroup
		for _, r := range list {
			done.Go(func() { p.settle(ctx, r) })
		}
		done.Wait()
	}
}

// Leave ends deciding on this node, which is about to stop, and has the other members settle what
// depends on it. It tells them what it has decided, since some may not get an answer from it in
// time.
func (p *Participant) Leave(ctx context.Context) {
	p.outcomes.leave()
	for by := time.Now().Add(leaveTime); p.outcomes.deciding() && time.Now().Before(by); {
		if !retry.Pause(ctx, askPause/10) {
			break
		}
	}
	q := &SettleRequest{Decider: p.opt.Self(), Decided: p.outcomes.decided()}
	rpc.Broadcast(ctx, p.opt.Table(), leaveTime, func(ctx context.Context, m *ring.Member) {
		_ = p.opt.Peers.Ask(ctx, m, q, nil) // who can't be reached counts what is reserved
	})
}
