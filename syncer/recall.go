package syncer

import (
	"cmp"
	"context"
	"fmt"

	"twotier.dev/twotier"
)

// IsLent reports whether this counter decides about a key and, if it does, whether borrowers may
// have counts of the key that this one does not see yet. Then there may be more to take back than
// it knows: see [twotier.Op.Recalled].
func (c *Counter) IsLent(check *twotier.Check) (lent, decides bool) {
	var t target
	c.locate(&t, check)
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	decides = t.p.ownership == owned
	return decides && t.mayBeLent(), decides
}

// CatchUp returns once two conditions hold: the store has all counts of a key that this counter has
// made until now and still answers for; and, if this counter decides about the key and shares it
// with others, it has read the counts that they had stored when CatchUp was called. It does not
// wait for a store that is known to be unreachable.
func (c *Counter) CatchUp(ctx context.Context, check *twotier.Check) error {
	var t target
	c.locate(&t, check)
	t.p.mu.Lock()
	ticket, begun := t.p.dirty.LastTicket, uint64(0)
	if k := t.sharedKey(); k != nil {
		begun = k.ReadsBegun()
	}
	if t.p.dirty.HandedOff(ticket) && !t.p.ownership.isSealed() {
		ticket = 0 // another counter has taken over the unacknowledged counts
	}
	t.p.mu.Unlock()
	for reads := false; ; reads = true {
		if unread := t.markDirtyUnlessRead(begun, c.opt.Now()); unread != 0 {
			ticket = unread
		} else if reads {
			return nil
		}
		reachable := func() bool { return !t.p.storeDown() }
		keys := []countedKey{t.countedKey()}
		_, err := t.p.awaitAckIf(ctx, ticket, keys, reachable)
		if err = cmp.Or(err, keys[0].err); err != nil {
			return fmt.Errorf("%w: what was counted is not in the store yet: %v",
				twotier.ErrUnavailable, err)
		}
	}
}

// markDirtyUnlessRead marks a shared key dirty that this counter decides about, unless a read has
// ended that began after this many others. It returns the ticket to wait for, or 0. A ticket does
// not cover reads: a lost or void answer is not requested again with the same ticket.
func (t *target) markDirtyUnlessRead(reads uint64, now int64) (ticket uint64) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	k := t.sharedKey()
	if k == nil || k.ReadSince(reads) || t.p.ownership != owned {
		return 0
	}
	t.p.markSharedDirty(now)
	return t.p.dirty.LastTicket
}
