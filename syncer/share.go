package syncer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
)

// sharedKeys are a partition's shared keys, of which there are few. They are guarded by the
// partition's lock.
type sharedKeys []sharedKey

// sharedKey is a key that several counters count at the same time.
type sharedKey struct {
	hash    uint32
	ns, key []byte
	read    time.Time // when the store last told what the others have flushed
}

// Share starts or ends counting a key in several counters at the same time, because it is in higher
// demand than one of them can serve. A shared key is flushed and read with every flush interval. A
// decision about it is never based on information older than [Counter.StaleAfter], and may miss
// what others admit within that time. The key stays in memory until it is no longer shared.
//
// While the store can't be told what is counted here, the others can't see it. Then sharing is
// neither started nor renewed, and the error is ErrUnavailable. What is already shared stays so
// until Share ends it.
func (c *Counter) Share(ns, key []byte, on bool) error {
	check := Check{NS: ns, Key: key}
	var t target
	c.locate(&t, &check)
	p := t.p
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.shared, func(k sharedKey) bool {
		return bytes.Equal(k.ns, t.ns) && bytes.Equal(k.key, key)
	})
	switch {
	case on && p.degraded():
		return fmt.Errorf("%w: the store, where all who share a key meet, can't be reached",
			ErrUnavailable)
	case on && i < 0:
		_, e, err := t.entry(c.opt.Now())
		if err != nil {
			return err
		}
		e.set(flagShared)
		p.dirty.shift.rouse()
		p.shared = append(p.shared,
			sharedKey{hash: t.hash, ns: bytes.Clone(t.ns), key: bytes.Clone(key)})
	case !on && i >= 0:
		p.shared = slices.Delete(p.shared, i, i+1)
		if at := p.keys.find(t.hash, t.ns, key); at != 0 {
			// Rounds with only shared keys are quiet. This enlists the key for one that is not, to
			// tell whoever decides about the key from now on.
			e := p.keys.entry(at)
			e.drop(flagShared)
			e.set(flagRenew)
			p.enlist(at, e)
		}
	}
	return nil
}

// enlistShared puts the shared keys on the dirty list, so that what others have flushed is read
// again.
func (g *guarded) enlistShared() {
	if g.ownership == handingOff {
		return
	}
	for i := range g.shared {
		k := &g.shared[i]
		at := g.keys.find(k.hash, k.ns, k.key)
		if at == 0 { // the key was reset, or the partition has changed hands
			at = g.keys.insertCold(k.hash, k.ns, k.key)
		}
		e := g.keys.entry(at)
		e.set(flagShared)
		g.enlist(at, e)
	}
}

// noteRead notes that the store has just told what it holds of a shared key.
func (s sharedKeys) noteRead(e entry) {
	for i := range s {
		if k := &s[i]; e.is(k.ns, k.key) {
			k.read = time.Now()
		}
	}
}

// find returns the target's shared key, or nil if its key is not shared.
func (s sharedKeys) find(t *target) *sharedKey {
	for i := range s {
		k := &s[i]
		if k.hash == t.hash && bytes.Equal(k.key, t.check.Key) && bytes.Equal(k.ns, t.ns) {
			return k
		}
	}
	return nil
}

// sharedRecent reports whether the store has told what it holds of a shared key recently enough,
// see Counter.StaleAfter.
func (g *guarded) sharedRecent(t *target) bool {
	k := g.shared.find(t)
	return k != nil && time.Since(k.read) <= g.readWithin
}

// StaleAfter bounds the age of the information behind a decision made in place of, or along with,
// another counter: a flush interval until the other has flushed, and up to two until this one reads
// it.
func (c *Counter) StaleAfter() time.Duration { return c.opt.FlushInterval + c.opt.readWithin() }

// readWithin is how long ago the store may at most have told what others have flushed, if a
// decision relies on it.
func (o *Options) readWithin() time.Duration { return 2 * o.FlushInterval }

// recent reports whether the store has answered for the partition recently enough, see
// Counter.StaleAfter.
func (g *guarded) recent() bool { return g.store.verifiedWithin(g.readWithin) }

// shared reports whether the target's key is shared.
func (t *target) shared() bool {
	return len(t.p.shared) > 0 && t.p.shared.find(t) != nil
}

// degraded reports whether any of the keys is in a degraded partition, or the store can't be asked
// about it. The partitions are locked.
func (k *call) degraded() bool {
	return slices.ContainsFunc(k.targets, func(t target) bool {
		return t.storeDown || t.p.degraded()
	})
}

// source returns the source of an answer about an entry while the store can be reached.
func (g *guarded) source(e entry) Source {
	switch {
	case e.has(flagShared):
		return SourceShared
	case g.ownership == notOwned:
		return SourceFallback
	}
	return SourceMemory
}

// Drop forgets what this counter knows about a key that is being reset elsewhere, including counts
// that the store does not have. It leaves a key alone that this counter decides about, unless
// deciding is set: then another counter, or the store itself, decides about it too. It returns once
// nothing of the key is in flight to the store or could still be: rounds that got no answer are
// sent again until they do. If that takes longer than ctx allows, or another counter receives
// counts of the key, the error wraps ErrUnknownOutcome.
func (c *Counter) Drop(ctx context.Context, ns, key []byte, deciding bool) error {
	check := Check{NS: ns, Key: key}
	var t target
	c.locate(&t, &check)
	p := t.p
	for offered := false; ; {
		p.mu.Lock()
		if offered && p.ownership == notOwned {
			p.mu.Unlock()
			return errOnTheWay
		}
		at := p.keys.find(t.hash, t.ns, key)
		if at == 0 || p.ownership == owned && !deciding {
			p.mu.Unlock()
			return nil
		}
		e := p.keys.entry(at)
		offered = p.handoff.offers(t.hash, e)
		if !offered && !p.outbox.has(t.hash, e) {
			p.dropKey(at, e, &t)
			p.mu.Unlock()
			return nil
		}
		settled := p.settled.wait()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped {
			return errOnTheWay
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return errOnTheWay
		}
	}
}

// dropKey forgets everything known and pending of a key, except for a reset that the store has yet
// to be told of.
func (g *guarded) dropKey(at arena.Ref, e entry, t *target) {
	resets := e.has(flagReset)
	g.forget(at, e, t.hash, t.sp.ladder)
	if !resets {
		e.drop(flagReset)
	}
	e.set(flagCold)
}
