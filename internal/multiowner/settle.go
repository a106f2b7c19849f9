package multiowner

import (
	"context"
	"errors"
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
	// reserveLimit is how long the node keeps asking. Then what is reserved is counted.
	reserveLimit = 10 * time.Second
	// askPause is the wait between two questions.
	askPause = 100 * time.Millisecond
	// leaveTime bounds how long a node that leaves waits for the others to ask.
	leaveTime = 2 * time.Second
)

// OutcomeRequest asks the decider of an acquire what has become of it. If it has not heard of the
// acquire, it will refuse it.
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
}

// Outcome answers an [OutcomeRequest].
func (p *Participant) Outcome(q *OutcomeRequest) (*OutcomeResponse, error) {
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
	open := false
	switch outcome {
	case NotCarriedOut:
		// That it was counted in doubt meanwhile is for the coordinator to be told, see undo.
		if p.reservations.close(r.id) {
			p.opt.Counter.Undo(r.id.String())
		}
	case CarriedOut:
		open = p.reservations.close(r.id)
	default:
		open = p.reservations.closeInDoubt(r.id, time.Now())
	}
	if open {
		if err := p.opt.Counter.Confirm(ctx, r.id.String(), syncer.AckMemory); err != nil {
			p.opt.Logger.Error("a reservation could not be confirmed", "error", err)
		}
	}
}

// learn asks the decider what has become of an acquire, until it says so. If it has died, or has
// not been reached for long enough, the outcome is Forgotten: it is counted, because it may have
// been carried out. The error is that of ctx.
func (p *Participant) learn(ctx context.Context, r *reservation) (Outcome, error) {
	for {
		switch o, err := p.ask(ctx, r); {
		case err == nil && (o == CarriedOut || o == NotCarriedOut):
			return o, nil
		case errors.Is(err, errDeciderGone), err == nil && o == Forgotten,
			elapsed.Between(r.since, time.Now()) > reserveLimit:
			p.opt.Logger.Warn("nobody knows whether an acquire over several nodes was carried "+
				"out: counting it", "decider", r.decider)
			return Forgotten, nil
		}
		if !retry.Pause(ctx, askPause) {
			return Undecided, ctx.Err()
		}
	}
}

var (
	errDeciderGone = errors.New("the node that decides is gone")
	// errCoordinatorTells: the coordinator may know that its message never reached the decider.
	errCoordinatorTells = errors.New("the node that decides is gone, but not the one that asked it")
)

// ask asks the decider of an acquire once.
func (p *Participant) ask(ctx context.Context, r *reservation) (Outcome, error) {
	t := p.opt.Table()
	at := t.Find(r.decider)
	switch {
	case at >= 0:
	case !r.abandoned && t.Find(r.id.Coordinator) >= 0:
		return Undecided, errCoordinatorTells
	default:
		return Undecided, errDeciderGone
	}
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	a := &OutcomeResponse{}
	err := p.opt.Peers.Ask(ctx, t.Member(at), &OutcomeRequest{r.id}, a)
	return a.Outcome, err
}

// Settle answers a [SettleRequest].
func (p *Participant) Settle(ctx context.Context, q *SettleRequest) error {
	for {
		list := p.reservations.leave(q.Decider, time.Now())
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
// depends on it.
func (p *Participant) Leave(ctx context.Context) {
	p.outcomes.leave()
	q := &SettleRequest{p.opt.Self()}
	rpc.Broadcast(ctx, p.opt.Table(), leaveTime, func(ctx context.Context, m *ring.Member) {
		_ = p.opt.Peers.Ask(ctx, m, q, nil) // who can't be reached counts what is reserved
	})
}
