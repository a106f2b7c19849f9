package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"twotier/internal/elapsed"
	"twotier/internal/retry"
	"twotier/internal/rpc"
	"twotier/syncer"
)

// How long reservations are kept.
const (
	// holdTime is how long a reservation waits to be confirmed or undone. Then the node finds out what became of it.
	holdTime = time.Second
	// holdLimit is how long it tries to. Then the reservation is given up.
	holdLimit = 10 * time.Second
	// maxHolds bounds the reservations that wait.
	maxHolds = 1 << 16
)

// holds are the reservations in this node's memory that belong to an Acquire over several nodes, and what became of those that this
// node decided.
type holds struct {
	mu       sync.Mutex
	open     map[string]*hold
	due      []*hold // those that were opened within holdTime, and are open or not, in order
	outcomes outcomes
	busy     atomic.Int64 // being reserved or confirmed at this moment
}

// hold is one reservation.
type hold struct {
	id, decider string
	since       time.Time
	closed      bool
}

func (h *holds) init() { h.open = map[string]*hold{} }

// idle reports whether nothing is reserved, and nothing that was is still to be counted. It is meant for when nothing can be reserved any
// more.
func (h *holds) idle() bool { return h.busy.Load() == 0 && h.count() == 0 && h.busy.Load() == 0 }

func (h *holds) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open)
}

// add notes a reservation.
func (h *holds) add(id, decider string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &hold{id: id, decider: decider, since: now}
	h.open[id] = o
	h.due = append(h.due, o)
}

// reserve decides this node's part of an Acquire, and holds its place.
func (n *Node) reserve(ctx context.Context, task *rpc.Task, res *Result) error {
	if n.inRedis() {
		return syncer.ErrElsewhere
	}
	if n.holds.count() >= maxHolds {
		return fmt.Errorf("%w: too many reservations wait", syncer.ErrOverload)
	}
	n.holds.busy.Add(1)
	defer n.holds.busy.Add(-1)
	err := n.opt.Counter.Reserve(ctx, task.Reservation, &task.Op, res)
	n.mark(res)
	if err != nil || !res.Allowed {
		return err
	}
	n.holds.add(task.Reservation, task.Coordinator, time.Now())
	return nil
}

// confirm counts what was reserved. If this node is the decider, that settles it for all.
func (n *Node) confirm(ctx context.Context, id string, ack Ack) error {
	n.holds.busy.Add(1)
	defer n.holds.busy.Add(-1)
	if ctx.Err() != nil {
		return errOver
	}
	if err := n.holds.close(id, n.self().Name, true); err != nil {
		return err
	}
	return n.opt.Counter.Confirm(ctx, id, ack)
}

// undo gives a reservation up.
func (n *Node) undo(id string) {
	if n.holds.close(id, n.self().Name, false) == nil {
		n.opt.Counter.Undo(id)
	}
}

// close takes a reservation off the list, and remembers that it is confirmed if self is the decider. The error says why it can't be
// confirmed: there is none, another node was told that it is not, or it could not be remembered.
func (h *holds) close(id, self string, confirmed bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.open[id]
	if o == nil {
		return fmt.Errorf("%w: no reservation %q", syncer.ErrUnavailable, id)
	}
	if confirmed && o.decider == self {
		if _, decided := h.outcomes.find(id); decided {
			return fmt.Errorf("%w: the reservation %q was given up", syncer.ErrUnavailable, id)
		}
		if !h.outcomes.add(id, true, time.Now()) {
			return fmt.Errorf("%w: too many reservations are being decided", syncer.ErrOverload)
		}
	}
	o.closed = true
	delete(h.open, id)
	return nil
}

// settled notes that nobody will ask for the outcome of a reservation.
func (h *holds) settled(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outcomes.forget(id)
}

// outcome says whether a reservation that this node decides about was confirmed. If that is open it is given up: who asks has waited
// long enough.
func (n *Node) outcome(id string) (confirmed bool, err error) {
	n.undo(id)
	n.holds.mu.Lock()
	defer n.holds.mu.Unlock()
	confirmed, decided := n.holds.outcomes.find(id)
	if !decided && !n.holds.outcomes.add(id, false, time.Now()) { // its place may just be being held: it must not be confirmed any more
		return false, fmt.Errorf("%w: too many reservations are being decided", syncer.ErrOverload)
	}
	return confirmed, nil
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
			for _, h := range n.holds.overdue(now) {
				n.spawn(func() { n.settleHold(ctx, h) })
			}
		}
	}
}

// overdue returns the reservations whose time is up, each once. It looks at each reservation once, too.
func (h *holds) overdue(now time.Time) (late []*hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	done := 0
	for done < len(h.due) && elapsed.Between(h.due[done].since, now) > holdTime {
		if o := h.due[done]; !o.closed {
			late = append(late, o)
		}
		done++
	}
	clear(h.due[:done])
	h.due = h.due[done:]
	return late
}

// settleHold does with an overdue reservation what the decider did, as soon as that can be found out.
func (n *Node) settleHold(ctx context.Context, h *hold) {
	for ctx.Err() == nil {
		confirmed, err := n.askDecider(ctx, h.id, h.decider)
		switch {
		case err == nil && confirmed:
			if err := n.confirm(ctx, h.id, syncer.AckMemory); err != nil {
				n.opt.Logger.Error("a reservation could not be confirmed", "error", err)
			}
			return
		case err == nil, elapsed.Between(h.since, time.Now()) > holdLimit, n.table().Find(h.decider) < 0:
			n.undo(h.id)
			return
		}
		retry.Pause(ctx, holdTime/4)
	}
}

// askDecider asks the decider how it decided.
func (n *Node) askDecider(ctx context.Context, id, decider string) (confirmed bool, err error) {
	if decider == n.self().Name {
		return n.outcome(id)
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
