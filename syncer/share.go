package syncer

import (
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
)

// shareKey returns the shared key with this name, and adds it if necessary.
func (b *ledger) shareKey(ns, key []byte) *loans.Key {
	k, added := b.shared.Share(ns, key)
	if added {
		b.dirty.Shift.Rouse()
	}
	return k
}

// adoptLoans takes over another counter's loans.
func (b *ledger) adoptLoans(list []twotier.Loan) {
	for i := range list {
		b.shareKey(list[i].NS, list[i].Key).Adopt(&list[i], time.Now())
	}
}

// unshareIdle ends the sharing of keys that are no longer lent or borrowed.
func (g *guarded) unshareIdle(now int64) {
	if len(g.shared) == 0 {
		return
	}
	g.shared = slices.DeleteFunc(g.shared, func(k *loans.Key) bool {
		idle := k.EndLoans(g.keys.Names.Ladder(k.NS).Span(), now, time.Now())
		if idle {
			g.unshare(k)
		}
		return idle
	})
	if len(g.shared) > 0 {
		return
	}
	// From now on quiet changes are news. They were none before: a paused borrower may have made
	// one to a key that was no longer shared.
	for _, e := range g.keys.All() {
		e.SetNeedsRead(!e.IsValues())
	}
}

// unshare makes a key an ordinary one. Rounds with only shared keys are quiet. unshare marks the
// key for one that is not, so that the next owner notices the change.
func (b *ledger) unshare(k *loans.Key) {
	if at := b.keys.Find(b.keys.Names.Hash(k.NS, k.Name), k.NS, k.Name); at != 0 {
		e := b.keys.EntryAt(at)
		e.ClearFlags(keys.FlagShared)
		e.SetFlags(keys.FlagRenew)
		e.SetNeedsRead(!e.IsValues())
		b.markDirty(at, e)
	}
}

// unshareAll ends the sharing of all keys, because the counter closes. A sealed ledger doesn't
// change, and its new owner reads the shared keys again.
func (b *ledger) unshareAll() {
	if b.ownership.isSealed() {
		return
	}
	for _, k := range b.shared {
		b.unshare(k)
	}
	b.shared = nil
}

// markSharedDirty puts the shared keys on the dirty list, so that the counts that others have
// flushed are read again.
func (g *guarded) markSharedDirty(now int64) {
	if g.ownership.isBetween() || len(g.shared) == 0 {
		return
	}
	g.unshareIdle(now)
	for _, k := range g.shared {
		hash := g.keys.Names.Hash(k.NS, k.Name)
		at := g.keys.Find(hash, k.NS, k.Name)
		if at == 0 { // the key was reset, or the partition has changed hands
			at = g.keys.InsertCold(hash, k.NS, k.Name)
		}
		e := g.keys.EntryAt(at)
		e.SetFlags(keys.FlagShared)
		g.markDirty(at, e)
	}
}

// sharedKey returns the shared key of an entry, or nil if its key is not shared.
func (b *ledger) sharedKey(e keys.Entry) *loans.Key {
	if !e.HasFlag(keys.FlagShared) {
		return nil
	}
	return b.shared.Find(e.Name())
}
