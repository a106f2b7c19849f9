package syncer

import (
	"fmt"
	"slices"
	"time"

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
	if h.store.IsConfirmed() && idle > hotIdle && h.keys.Bytes() > coldBytes ||
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
