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
)

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

// takeBackHere takes counts back on this node.
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
	if c.byNumber == nil {
		c.byNumber = map[uint64]coordinatedOutcome{}
	}
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
