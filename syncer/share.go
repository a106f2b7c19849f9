package syncer

import (
	"bytes"
	"slices"
	"time"
	"twotier.dev/twotier"
)

// sharedKeys holds a partition's shared keys, of which there are few. It is guarded by the
// partition's lock.
type sharedKeys []*sharedKey

// sharedKey is a key that several counters count at the same time, because it is in higher demand
// than one of them can serve: its owner, and the borrowers of some of the room left in its limits.
// It is flushed and read with every flush interval, and stays in memory.
type sharedKey struct {
	hash      uint32
	ns, key   []byte
	read      time.Time  // when the store last reported the counts flushed by others
	cuts      uint64     // how many rounds were cut that read the key
	seen      uint64     // the number of the last cut whose round was answered
	loans     []loan     // at the owner
	allowance *allowance // elsewhere
}

// share returns the shared key of the target, making it shared if necessary. The partition is
// locked.
func (t *target) share(now int64) (*sharedKey, error) {
	if k := t.p.shared.find(t); k != nil {
		return k, nil
	}
	_, e, err := t.entry(now)
	if err != nil {
		return nil, err
	}
	e.set(flagShared)
	return t.p.shareKey(t.hash, t.ns, t.check.Key), nil
}

// shareKey returns the shared key with this name, and adds it if necessary.
func (b *ledger) shareKey(hash uint32, ns, key []byte) *sharedKey {
	i := slices.IndexFunc(b.shared, func(k *sharedKey) bool {
		return bytes.Equal(k.ns, ns) && bytes.Equal(k.key, key)
	})
	if i >= 0 {
		return b.shared[i]
	}
	k := &sharedKey{hash: hash, ns: bytes.Clone(ns), key: bytes.Clone(key)}
	b.shared = append(b.shared, k)
	b.dirty.shift.rouse()
	return k
}

// unshareIdle ends the sharing of keys that are no longer lent or borrowed.
func (g *guarded) unshareIdle(now int64) {
	g.shared = slices.DeleteFunc(g.shared, func(k *sharedKey) bool {
		k.endLoans(g.keys.names.ladder(k.ns).Span(), now)
		if k.allowance != nil || len(k.loans) > 0 {
			return false
		}
		g.unshare(k)
		return true
	})
}

// unshare makes a key an ordinary one. Rounds with only shared keys are quiet. unshare enlists the
// key for one that is not, so that the next owner notices the change.
func (b *ledger) unshare(k *sharedKey) {
	if at := b.keys.find(k.hash, k.ns, k.key); at != 0 {
		e := b.keys.entry(at)
		e.drop(flagShared)
		e.set(flagRenew)
		b.enlist(at, e)
	}
}

// unshareAll ends the sharing of all keys, because the counter closes. A sealed ledger doesn't
// change, and its new owner reads the shared keys again.
func (b *ledger) unshareAll() {
	if b.sealed {
		return
	}
	for _, k := range b.shared {
		b.unshare(k)
	}
	b.shared = nil
}

// enlistShared puts the shared keys on the dirty list, so that the counts that others have flushed
// are read again.
func (g *guarded) enlistShared(now int64) {
	if g.ownership == handingOff || len(g.shared) == 0 {
		return
	}
	g.unshareIdle(now)
	for _, k := range g.shared {
		at := g.keys.find(k.hash, k.ns, k.key)
		if at == 0 { // the key was reset, or the partition has changed hands
			at = g.keys.insertCold(k.hash, k.ns, k.key)
		}
		e := g.keys.entry(at)
		e.set(flagShared)
		g.enlist(at, e)
	}
}

// cuts returns how many rounds that read a key have been cut.
func (s sharedKeys) cuts(t *target) uint64 {
	if k := s.find(t); k != nil {
		return k.cuts
	}
	return 0
}

// noteRead records that the store has just reported its counts of a shared key.
func (s sharedKeys) noteRead(e entry) {
	if k := s.of(e); k != nil {
		k.read = time.Now()
	}
}

// of returns the shared key of an entry, or nil if its key is not shared.
func (s sharedKeys) of(e entry) *sharedKey {
	for _, k := range s {
		if e.is(k.ns, k.key) {
			return k
		}
	}
	return nil
}

// find returns the target's shared key, or nil if its key is not shared.
func (s sharedKeys) find(t *target) *sharedKey {
	for _, k := range s {
		if k.hash == t.hash && bytes.Equal(k.key, t.check.Key) && bytes.Equal(k.ns, t.ns) {
			return k
		}
	}
	return nil
}

// sharedRecent reports whether the store has reported its counts of a shared key recently enough,
// see Counter.StaleAfter.
func (g *guarded) sharedRecent(t *target) bool {
	k := g.shared.find(t)
	return k != nil && time.Since(k.read) <= g.readWithin
}

// StaleAfter bounds the age of the information behind a decision made in place of, or along with,
// another counter: one flush interval until the other has flushed, and up to two until this one
// reads its counts.
func (c *Counter) StaleAfter() time.Duration { return c.opt.FlushInterval + c.opt.readWithin() }

// readWithin is the maximum age of the store's last report, if a decision relies on it.
func (o *Options) readWithin() time.Duration { return 2 * o.FlushInterval }

// recent reports whether the store has answered for the partition recently enough, see
// Counter.StaleAfter.
func (g *guarded) recent() bool { return g.store.verifiedWithin(g.readWithin) }

// source returns the source of an answer about another counter's key while the store can be
// reached.
func (t *target) source() twotier.Source {
	if t.borrowed {
		return twotier.SourceNear
	}
	return twotier.SourceFallback
}
