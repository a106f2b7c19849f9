package syncer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/store"
)

// Bounds of the keys that are handed over without pending counts. The new owner loads the rest from
// the store on demand.
const (
	// hotIdle is the longest time in seconds since a key's last use for which it is handed over in
	// any case.
	hotIdle = 60
	// coldBytes is the size above which a partition hands over only hot keys.
	coldBytes = 1 << 20
	// stampShift is the position of a cursor's handoff number.
	stampShift = 40
)

// page returns a part of the handoff, see [Counter.HandoffPage].
func (h *handoff) page(cursor uint64, budget int) (page *Handoff, next uint64, err error) {
	stamp := h.times << stampShift
	if cursor != 0 && cursor>>stampShift<<stampShift != stamp {
		return nil, 0, fmt.Errorf("partition %d: its handoff has started again", h.id)
	}
	cursor &^= stamp
	page = h.emptyPage()
	page.MaybeSent = page.MaybeSent || h.ownership == offered && cursor == 0
	h.ownership = offered
	if cursor == 0 {
		page.Loans = h.shared.AppendLoans(nil)
	}
	rounds := uint64(len(h.rounds))
	for ; cursor < rounds && budget > 0; cursor++ {
		r := h.rounds[cursor].Copy()
		page.Rounds = append(page.Rounds, r)
		budget -= sizeOf(r)
	}
	slots := uint64(h.keys.Slots())
	for ; cursor < rounds+slots && budget > 0; cursor++ {
		e := h.keys.EntryIn(int(cursor - rounds))
		if e == nil {
			continue
		}
		if k, ok := h.stateOf(e); ok {
			page.Keys = append(page.Keys, k)
			budget -= k.size()
		}
	}
	if cursor < rounds+slots {
		return page, cursor | stamp, nil
	}
	return page, 0, nil
}

// emptyPage returns the common part of all pages.
func (h *handoff) emptyPage() *Handoff {
	last := h.store.Latest()
	page := &Handoff{
		Partition: h.id, Epoch: last.Epoch, Version: last.Version, Quieted: last.Quieted,
		LastChange: last.LastChange, MaybeSent: h.outbox.MaybeSent,
	}
	if since := h.unflushedSince(); !since.IsZero() {
		page.UnflushedAge = time.Since(since)
	}
	return page
}

// stateOf returns the known counts of a key, if they are worth handing over. That includes outdated
// counts: if the store loses everything, there are no others. Until the store has confirmed that it
// still has everything, no key is left out for being idle.
func (h *handoff) stateOf(e keys.Entry) (k KeyState, ok bool) {
	idle := e.IdleSeconds(h.keys.Clock.Second())
	// Others may have counted since. Their counts of a shared key are no news, and the key is not
	// read any more.
	k.Cold = !h.warm(e) || h.store.MayHaveChanged() || e.HasFlag(keys.FlagShared)
	if h.store.IsConfirmed() && idle > hotIdle && 8*h.keys.Words() > coldBytes ||
		k.Cold && !e.HasSynced() {
		return k, false
	}
	ns, key := e.Name()
	k.NS, k.Key = slices.Clone(ns), slices.Clone(key)
	k.Buckets = h.appendSynced(nil, e)
	return k, true
}

// size estimates the size of a key in a page, in bytes.
func (k *KeyState) size() int { return 8 + len(k.NS) + len(k.Key) + 8*len(k.Buckets) }

func sizeOf(r *store.Round) (n int) {
	for i := range r.Keys {
		k := &r.Keys[i]
		n += 16 + len(k.NS) + len(k.Key) + 8*len(k.Adds)
	}
	return n
}

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
