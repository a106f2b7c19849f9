package multiowner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
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
	// coordinator about it.
	reserveTime = time.Second
	// reserveLimit is how long the node keeps asking. Then the reservation is undone.
	reserveLimit = 10 * time.Second
	// maxReservations bounds the reservations that wait.
	maxReservations = 1 << 16
)

// Counter reserves what an acquire admits. A syncer.Counter is one.
type Counter interface {
	// Reserve decides an acquire and reserves what it admits. Confirm counts a reservation. Undo
	// gives it up and reports whether there was one.
	Reserve(ctx context.Context, id string, op *syncer.Op, res *syncer.Result) error
	Confirm(ctx context.Context, id string, ack syncer.Ack) error
	Undo(id string) bool
}

// Peers reaches the other nodes. Its errors are those of package rpc.
type Peers interface {
	// Do has another node run tasks and sets Err in each result.
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []syncer.Result)
	// Ask sends a request to another node and fills in its response.
	Ask(ctx context.Context, to *ring.Member, request, response any) error
}

// Options configure a [Participant]. All but Logger are required.
type Options struct {
	// Self returns the name of this node, Table the members.
	Self    func() string
	Table   func() *ring.Table
	Counter Counter
	Peers   Peers
	// InRedis reports whether the cluster counts in Redis: then nothing can be reserved.
	InRedis func() bool
	// Go runs fn in the background; fn's context is done when the node closes.
	Go func(fn func(ctx context.Context))
	// Logger receives reservations that can't be confirmed. Default: none.
	Logger *slog.Logger
}

// OutcomeRequest asks the coordinator whether a reservation was confirmed. If it is still
// undecided, it can no longer be confirmed.
type OutcomeRequest struct {
	Reservation string
}

// OutcomeResponse is the answer to an [OutcomeRequest].
type OutcomeResponse struct {
	Confirmed bool
}

// errExpired says that nothing was counted because the request timed out.
var errExpired = fmt.Errorf("%w: the time for it is up", syncer.ErrUnavailable)

// Participant keeps this node's reservations that belong to acquires over several owners, and the
// outcomes of those that it coordinates.
type Participant struct {
	opt          Options
	reservations reservations
	busy         atomic.Int64 // operations that are reserving or confirming
}

// NewParticipant returns a participant without reservations.
func NewParticipant(opt Options) *Participant {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	return &Participant{opt: opt, reservations: reservations{open: map[string]*reservation{}}}
}

// Idle reports whether nothing is reserved, and no confirmed reservation is still being counted.
// Call it once nothing new can be reserved.
func (p *Participant) Idle() bool {
	// A reservation that is confirmed between the first two checks sets busy before it is closed.
	return p.busy.Load() == 0 && p.reservations.count() == 0 && p.busy.Load() == 0
}

// Serve runs a task about a reservation.
func (p *Participant) Serve(ctx context.Context, task *rpc.Task, res *syncer.Result) error {
	switch task.Verb {
	case rpc.VerbReserve:
		return p.reserve(ctx, task, res)
	case rpc.VerbConfirm:
		return p.confirm(ctx, task.Reservation, task.Op.Ack)
	case rpc.VerbUndo:
		p.undo(task.Reservation)
		return nil
	}
	return fmt.Errorf("%w: verb %d is not about a reservation", syncer.ErrUnavailable, task.Verb)
}

// reserve decides about this node's part of an acquire and reserves what it admits.
func (p *Participant) reserve(ctx context.Context, task *rpc.Task, res *syncer.Result) error {
	if p.opt.InRedis() {
		return syncer.ErrNotOwner
	}
	if p.reservations.count() >= maxReservations {
		return fmt.Errorf("%w: too many reservations wait", syncer.ErrOverload)
	}
	p.busy.Add(1)
	defer p.busy.Add(-1)
	err := p.opt.Counter.Reserve(ctx, task.Reservation, &task.Op, res)
	if err != nil || !res.Allowed {
		return err
	}
	p.reservations.add(task.Reservation, task.Coordinator, time.Now())
	return nil
}

// confirm counts a reservation. If this node is the coordinator, that decides the acquire.
func (p *Participant) confirm(ctx context.Context, id string, ack syncer.Ack) error {
	p.busy.Add(1)
	defer p.busy.Add(-1)
	if ctx.Err() != nil {
		return errExpired
	}
	if err := p.reservations.close(id, p.opt.Self(), true); err != nil {
		return err
	}
	return p.opt.Counter.Confirm(ctx, id, ack)
}

// undo gives up a reservation.
func (p *Participant) undo(id string) {
	if p.reservations.close(id, p.opt.Self(), false) == nil {
		p.opt.Counter.Undo(id)
	}
}

// Outcome returns whether a reservation that this node coordinates was confirmed. If it is
// undecided, it is undone, because the asking owner has waited long enough.
func (p *Participant) Outcome(q *OutcomeRequest) (*OutcomeResponse, error) {
	p.undo(q.Reservation)
	confirmed, err := p.reservations.outcome(q.Reservation, time.Now())
	return &OutcomeResponse{confirmed}, err
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
		}
	}
}

// settle confirms or undoes an overdue reservation like the coordinator, once it has found out.
func (p *Participant) settle(ctx context.Context, r *reservation) {
	for ctx.Err() == nil {
		confirmed, err := p.askCoordinator(ctx, r.id, r.coordinator)
		switch {
		case err == nil && confirmed:
			if err := p.confirm(ctx, r.id, syncer.AckMemory); err != nil {
				p.opt.Logger.Error("a reservation could not be confirmed", "error", err)
			}
			return
		case err == nil, elapsed.Between(r.since, time.Now()) > reserveLimit,
			p.opt.Table().Find(r.coordinator) < 0:
			p.undo(r.id)
			return
		}
		retry.Pause(ctx, reserveTime/4)
	}
}

// askCoordinator asks the coordinator of a reservation whether it was confirmed.
func (p *Participant) askCoordinator(
	ctx context.Context, id, coordinator string,
) (confirmed bool, err error) {
	q, a := &OutcomeRequest{id}, &OutcomeResponse{}
	if coordinator == p.opt.Self() {
		a, err = p.Outcome(q)
		return a.Confirmed, err
	}
	t := p.opt.Table()
	at := t.Find(coordinator)
	if at < 0 {
		return false, errors.New("the coordinator is gone")
	}
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	err = p.opt.Peers.Ask(ctx, t.Member(at), q, a)
	return a.Confirmed, err
}
