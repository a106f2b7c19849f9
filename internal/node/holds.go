package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"twotier/syncer"
)

// How long reservations are kept.
const (
	// holdTime is how long a reservation waits to be confirmed or undone. Then the node finds out what became of it.
	holdTime = time.Second
	// holdLimit is how long it tries to. Then the reservation is given up.
	holdLimit = 10 * time.Second
	// outcomeTime is how long the decider remembers what it confirmed, or said that it had not.
	outcomeTime = time.Minute
)

// holds are the reservations in this node's memory that belong to an Acquire over several nodes, and what became of those that this
// node decided.
type holds struct {
	mu       sync.Mutex
	open     map[string]*hold
	outcomes map[string]outcome
	swept    time.Time
	busy     atomic.Int64 // being reserved or confirmed at this moment
}

// idle reports whether nothing is reserved, and nothing that was is still to be counted. It is meant for when nothing can be reserved any
// more.
func (h *holds) idle() bool {
	if h.busy.Load() > 0 {
		return false
	}
	h.mu.Lock()
	open := len(h.open)
	h.mu.Unlock()
	return open == 0 && h.busy.Load() == 0
}

// hold is one reservation.
type hold struct {
	decider string
	since   time.Time
	asking  bool
}

// outcome is how this node decided.
type outcome struct {
	confirmed bool
	at        time.Time
}

func (h *holds) init() {
	h.open, h.outcomes = map[string]*hold{}, map[string]outcome{}
}

// reserve decides this node's part of an Acquire, and holds its place.
func (n *Node) reserve(ctx context.Context, task *Task, res *Result) error {
	if n.inRedis() {
		return syncer.ErrElsewhere
	}
	n.holds.busy.Add(1)
	defer n.holds.busy.Add(-1)
	if err := n.opt.Counter.Reserve(ctx, task.Hold, &task.Op, res); err != nil || !res.Allowed {
		return err
	}
	n.holds.mu.Lock()
	defer n.holds.mu.Unlock()
	n.holds.open[task.Hold] = &hold{decider: task.Decider, since: time.Now()}
	return nil
}

// confirm counts what was reserved. If this node is the decider, that settles it for all.
func (n *Node) confirm(ctx context.Context, id string, ack Ack) error {
	n.holds.busy.Add(1)
	defer n.holds.busy.Add(-1)
	if ctx.Err() != nil {
		return errOver
	}
	if !n.holds.close(id, n.self().Name, true) {
		return fmt.Errorf("%w: no reservation %q", syncer.ErrUnavailable, id)
	}
	return n.opt.Counter.Confirm(ctx, id, ack)
}

// undo gives a reservation up.
func (n *Node) undo(id string) {
	if n.holds.close(id, n.self().Name, false) {
		n.opt.Counter.Undo(id)
	}
}

// close takes a reservation off the list, and remembers that it is confirmed if self is the decider. It reports false if there is
// none, or if another node was told that it is not confirmed.
func (h *holds) close(id, self string, confirmed bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.open[id]
	if _, decided := h.outcomes[id]; o == nil || decided && confirmed {
		return false
	}
	delete(h.open, id)
	if confirmed && o.decider == self {
		h.outcomes[id] = outcome{true, time.Now()}
	}
	return true
}

// outcome says whether a reservation that this node decides about was confirmed. If that is open it is given up: who asks has waited
// long enough.
func (n *Node) outcome(id string) bool {
	n.undo(id)
	n.holds.mu.Lock()
	defer n.holds.mu.Unlock()
	o, decided := n.holds.outcomes[id]
	if !decided { // the place may just be being held: it must not be confirmed any more
		n.holds.outcomes[id] = outcome{false, time.Now()}
	}
	return o.confirmed
}

// runHolds settles reservations that nobody confirms or undoes.
func (n *Node) runHolds(ctx context.Context) {
	ticker := time.NewTicker(holdTime / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for id, h := range n.holds.overdue(now) {
				n.spawn(func() { n.settleHold(ctx, id, h) })
			}
		}
	}
}

// overdue returns the reservations whose time is up, and forgets old outcomes.
func (h *holds) overdue(now time.Time) map[string]hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	late := map[string]hold{}
	for id, o := range h.open {
		if !o.asking && now.Sub(o.since) > holdTime {
			o.asking = true
			late[id] = *o
		}
	}
	if now.Sub(h.swept) > time.Second {
		h.swept = now
		for id, o := range h.outcomes {
			if now.Sub(o.at) > outcomeTime {
				delete(h.outcomes, id)
			}
		}
	}
	return late
}

// settleHold does with an overdue reservation what the decider did.
func (n *Node) settleHold(ctx context.Context, id string, h hold) {
	confirmed, err := n.askDecider(ctx, id, h.decider)
	switch {
	case err == nil && confirmed:
		if err := n.confirm(ctx, id, syncer.AckMemory); err != nil {
			n.opt.Logger.Error("a reservation could not be confirmed", "error", err)
		}
	case err == nil, time.Since(h.since) > holdLimit, n.table().Find(h.decider) < 0:
		n.undo(id)
	default:
		n.holds.mu.Lock()
		if o := n.holds.open[id]; o != nil {
			o.asking = false // again at the next look
		}
		n.holds.mu.Unlock()
	}
}

// askDecider asks the decider how it decided.
func (n *Node) askDecider(ctx context.Context, id, decider string) (confirmed bool, err error) {
	if decider == n.self().Name {
		return n.outcome(id), nil
	}
	t := n.table()
	at := t.Find(decider)
	if at < 0 {
		return false, errors.New("the node that decides is gone")
	}
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	var a OutcomeAnswer
	err = n.opt.Peers.Ask(ctx, t.Member(at), &OutcomeQuestion{id}, &a)
	return a.Confirmed, err
}
