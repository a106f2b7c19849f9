package syncer

import (
	"context"
	"fmt"

	"twotier.dev/twotier"
)

// ReservedChecks lists the reserved checks of an id, and the time at which they will be counted.
func (c *Counter) ReservedChecks(id string) (checks []twotier.Check, ts int64) {
	c.reservations.mu.Lock()
	defer c.reservations.mu.Unlock()
	if r := c.reservations.byID[id]; r != nil {
		checks, ts = r.checks, r.ts
	}
	return checks, ts
}

// Confirm counts a reservation. If there is no such reservation, nothing was counted and the error
// wraps ErrUnavailable. After ErrClosed nothing was counted either, but the reservation still
// exists. With AckStore it returns after the store has acknowledged the counts; with a stronger
// ack, after they are kept.
func (c *Counter) Confirm(ctx context.Context, id string, ack twotier.Ack) error {
	r := c.reservations.remove(id)
	if r == nil {
		return fmt.Errorf("%w: no reservation %q", twotier.ErrUnavailable, id)
	}
	op := twotier.Op{Kind: twotier.Acquire, TS: r.ts, Ack: ack, Checks: r.checks}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	k.begin(&op, c.opt.Now())
	k.TS = r.ts
	k.locate(&c.directory)
	k.lock()
	err := k.countReserved(id)
	if err != nil {
		c.reservations.put(r)
	}
	k.unlock()
	switch {
	case err != nil || !c.durability.waitsForStore(&op):
		return err
	case k.refused:
		return errRefusedKey
	}
	return k.awaitAck(ctx, &c.durability)
}

// Undo gives up a reservation. It reports whether there was one.
func (c *Counter) Undo(id string) bool {
	r := c.reservations.remove(id)
	if r == nil {
		return false
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	k.begin(&twotier.Op{Kind: twotier.Acquire, TS: r.ts, Checks: r.checks}, c.opt.Now())
	k.locate(&c.directory)
	k.lock()
	k.unreserve(id)
	k.unlock()
	return true
}
