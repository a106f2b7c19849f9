package holds

import (
	"context"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
)

const (
	// changesAtOnce and bytesAtOnce bound the changes in one write to the store.
	changesAtOnce = 1000
	bytesAtOnce   = 1 << 20
)

// slotChange adds an id to a slot of the store, or removes it.
type slotChange struct {
	slot    int64
	id      string
	removes bool
}

// A Ticket stands for a change of the store, to be awaited. It is 0 if there is no store.
type Ticket int64

// lostTicket stands for a change that the store will not see.
const lostTicket Ticket = -1

// errNotKept means that a deadline may end with this process.
var errNotKept = fmt.Errorf("%w: it is counted, but may not be released at its end",
	twotier.ErrUnknownOutcome)

// change remembers a change of the store. While it is down, those that don't fit are lost: their
// holds are released by this node, or not at all.
func (d *Deadlines) change(c slotChange) Ticket {
	switch {
	case d.Store == nil:
		return 0
	case d.unseen >= d.quarter():
		return lostTicket
	}
	d.changes = append(d.changes, c)
	d.unseen += costOf(c.id)
	return d.written + Ticket(len(d.changes))
}

// Await returns once the store has the changes up to a ticket. The error is an ErrUnknownOutcome.
func (d *Deadlines) Await(ctx context.Context, t Ticket) error {
	for t != lostTicket {
		d.mu.Lock()
		if t <= d.written {
			d.mu.Unlock()
			return nil
		}
		if d.news == nil {
			d.news = make(chan struct{})
		}
		news := d.news
		d.mu.Unlock()
		select {
		case d.wake <- struct{}{}:
		default: // a write is due
		}
		select {
		case <-news:
		case <-ctx.Done():
			return errNotKept
		}
	}
	return errNotKept
}

// write writes changes to the store, some at a time, until there are none or it fails.
func (d *Deadlines) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		some := d.oldestChanges()
		if len(some) == 0 {
			return
		}
		add, remove := map[int64][]string{}, map[int64][]string{}
		for _, c := range some {
			in := add
			if c.removes {
				in = remove
			}
			in[c.slot] = append(in[c.slot], c.id)
		}
		if err := d.Store.ChangeDeadlines(ctx, add, remove); err != nil {
			d.Logger.Debug("can't write the deadlines of holds", "error", err)
			return
		}
		d.forgetChanges(len(some))
	}
}

// oldestChanges returns changes for one write.
func (d *Deadlines) oldestChanges() []slotChange {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(d.changes), changesAtOnce) && bytes < bytesAtOnce {
		bytes += len(d.changes[n].id)
		n++
	}
	return slices.Clone(d.changes[:n])
}

// forgetChanges forgets the oldest n changes, which the store has seen.
func (d *Deadlines) forgetChanges(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.changes[:n] {
		d.unseen -= costOf(c.id)
	}
	clear(d.changes[:n])
	if d.written += Ticket(n); d.news != nil {
		close(d.news)
		d.news = nil
	}
	if d.changes = d.changes[n:]; len(d.changes) == 0 {
		d.changes = nil
	}
}
