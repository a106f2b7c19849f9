package syncer

import (
	"context"
	"errors"
	"iter"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// lockWarm returns with the partitions of a call locked, and with each key either in memory, known
// not to exist, or unread: the store is known to be unreachable, or refuses the key. It waits for a
// late store until ctx is done or, if ctx has no deadline, for no longer than most.
func (k *call) lockWarm(ctx context.Context, most time.Duration) error {
	var patience <-chan time.Time
	for {
		k.lock()
		settled, err := k.askForCold()
		if settled == nil && err == nil {
			return nil
		}
		if err != nil {
			k.stopWaiting()
			k.unlock()
			return err
		}
		k.unlock()
		if _, bounded := ctx.Deadline(); !bounded && patience == nil {
			timer := time.NewTimer(most)
			defer timer.Stop()
			patience = timer.C
		}
		select {
		case <-settled:
			if k.updatePresent(); ctx.Err() == nil {
				continue
			}
		case <-patience:
		case <-ctx.Done():
		}
		k.lock()
		k.stopWaiting()
		k.unlock()
		return errLate
	}
}

// askForCold requests the keys that are not known to be loaded. It returns a channel that is closed
// when there is news of one of them, or nil if no key needs a wait. The partitions are locked.
func (k *call) askForCold() (settled <-chan struct{}, err error) {
	if !k.claimCredits() || k.stoodStill() {
		return nil, twotier.ErrNotOwner
	}
	for i := range k.targets {
		t := &k.targets[i]
		ready, err := t.ready()
		if err != nil {
			return nil, err
		}
		if !ready {
			settled = t.p.settled.nextNews()
			t.p.loader.schedule(t.p)
		}
	}
	return settled, nil
}

// stopWaiting stops waiting for requested keys. The partitions are locked.
func (k *call) stopWaiting() {
	for i := range k.targets {
		k.targets[i].stopWaiting()
	}
}

func (t *target) stopWaiting() {
	if t.load != nil {
		t.load.Waiters--
		t.load = nil
	}
}

// ready reports whether a decision about the target's key is possible now, and requests the key if
// not.
func (t *target) ready() (ready bool, err error) {
	for {
		switch {
		case t.needsNoLoad():
			t.stopWaiting()
			return true, nil
		case t.p.phase >= closed:
			return false, twotier.ErrClosed
		case t.load != nil && t.load.Done:
			if err := t.applyOutcome(t.load); err != nil {
				return false, err
			}
		case t.p.storeDown():
			t.storeDown = true
		case t.load == nil:
			t.load = t.p.loads.Request(t.hash, t.ns, t.check.Key)
			return false, nil
		default:
			return false, nil
		}
	}
}

// applyOutcome applies the outcome of the load that the target waited for.
func (t *target) applyOutcome(w *rounds.PendingLoad) error {
	t.load = nil
	w.Waiters--
	switch {
	case w.Err == nil:
		t.loaded, t.absence = true, w.Absence
	case errors.Is(w.Err, twotier.ErrOverload):
		return w.Err
	case errors.Is(w.Err, twotier.ErrNotOwner):
		// The partition was about to be handed off: the caller checks its owner again.
	default:
		t.keyRefused = true
	}
	return nil
}

// lacksStoreCounts reports whether the operation has to do without the store's counts of the key.
func (t *target) lacksStoreCounts() bool { return t.storeDown || t.keyRefused }

// needsNoLoad reports whether the target needs no load. Its partition is locked.
func (t *target) needsNoLoad() bool {
	switch {
	case t.credit != nil:
		return true
	case t.p.keys.NoStore:
		t.loaded = true // memory has everything
		return true
	}
	if t.fresh && !t.loaded && !t.lacksStoreCounts() && !t.p.storeDown() {
		return false
	}
	r := t.p.keys.Find(t.hash, t.ns, t.check.Key)
	if r == 0 {
		t.absent = t.p.stillAbsent(t.absence, t.hash) || t.isKnownAbsent()
		return t.absent || t.lacksStoreCounts()
	}
	if t.lacksStoreCounts() {
		return true
	}
	e := t.p.keys.EntryAt(r)
	if t.p.ownership == notOwned {
		return t.loaded && t.p.everLoaded(e) || t.p.warm(e) && t.isUpToDate(e)
	}
	return t.p.warm(e)
}

// requestLoads requests all keys of a batch that have to be loaded, so that they are loaded
// together. It returns the loads, check by check, or nil if all keys are known. It leaves out keys
// of other owners: anything that may be done with them here needs no load.
func (b *batch) requestLoads() (ahead []*rounds.PendingLoad) {
	k := b.o.calls.Get().(*call)
	defer b.o.calls.Put(k)
	k.begin(nil, 0)
	var asked []*partition
	var places [atOnce]int
	var nonOwner [atOnce]bool
	askSome := func() {
		k.sortPartitions()
		k.lock()
		k.prefetch(true)
		for i := range k.targets {
			t := &k.targets[i]
			if t.p.refuses(nonOwner[i]) || t.needsNoLoad() || t.p.storeDown() ||
				t.p.phase >= closed {
				continue
			}
			if ahead == nil {
				ahead = make([]*rounds.PendingLoad, countChecks(b.ops))
			}
			ahead[places[i]] = t.p.loads.Request(t.hash, t.ns, t.check.Key)
			asked = append(asked, t.p)
		}
		k.unlock()
		k.begin(nil, 0)
	}
	at := 0
	for i := range b.ops {
		for j := range b.ops[i].Checks {
			check := &b.ops[i].Checks[j]
			if at++; isUnconditional(&b.ops[i]) {
				continue
			}
			n := len(k.targets)
			places[n], nonOwner[n] = at-1, b.ops[i].AllowNonOwner || check.InPlace
			k.targets = append(k.targets, target{})
			b.o.locate(&k.targets[n], check)
			k.targets[n].fresh = k.targets[n].settles(&b.ops[i])
			if k.parts = append(k.parts, k.targets[n].p); n+1 == atOnce {
				askSome()
			}
		}
	}
	askSome()
	for _, p := range asked {
		p.loader.schedule(p)
	}
	return ahead
}

// stopWaiting stops waiting for keys that were requested ahead and that no call has taken over,
// because their operations are not carried out. Otherwise they would be kept, and loaded, for
// nobody.
func (b *batch) stopWaiting() {
	if b.ahead == nil {
		return
	}
	ahead := b.ahead
	for i := range b.ops {
		for j := range b.ops[i].Checks {
			if w := ahead[j]; w != nil {
				p := b.o.partitionOf(&b.ops[i].Checks[j])
				p.mu.Lock()
				w.Waiters--
				p.mu.Unlock()
			}
		}
		ahead = ahead[len(b.ops[i].Checks):]
	}
	b.ahead = nil
}

func countChecks(ops []twotier.Op) (n int) {
	for i := range ops {
		n += len(ops[i].Checks)
	}
	return n
}

// EachUnflushed calls fn for every key with counts that the store has not acknowledged, which would
// be lost if the process ended now. n is their sum on the coarsest level. It is zero if as much was
// taken back as was counted, although the store may have one of both already. For a key of
// different values, n is their number. ns is empty for the default namespace. fn must not keep the
// names. Without a store there is nothing to flush.
func (c *Counter) EachUnflushed(fn func(ns, key []byte, n int64)) {
	if c.opt.Store == nil {
		return
	}
	for p, e := range c.entries() {
		if e.HasPending() || e.HasFlag(keys.FlagBusy) {
			ns, key := e.Name()
			n := p.keys.ValuesOf(e).B.Len()
			fn(ns, key, int64(n)+p.keys.Ladder(e).Total(p.keys.PendingOf(e)))
		}
	}
}

// EachSynced calls fn for every key with its synced counts, in partitions that this counter decides
// about. They can be restored if the store loses everything. The arguments are as in
// [Counter.EachUnflushed].
func (c *Counter) EachSynced(fn func(ns, key []byte, n int64)) {
	for p, e := range c.entries() {
		n := p.keys.ValuesOf(e).A.Len()
		sum := int64(n) + p.keys.Ladder(e).Total(p.keys.SyncedOf(e))
		if sum != 0 && p.ownership != notOwned {
			ns, key := e.Name()
			fn(ns, key, sum)
		}
	}
}

// EachValues calls fn for every key of different values with those that [Counter.EachSynced] counts
// (A) and those that [Counter.EachUnflushed] counts (B). fn must not keep its arguments.
func (c *Counter) EachValues(fn func(ns, key []byte, v leaparray.ValuesView)) {
	for p, e := range c.entries() {
		if e.IsValues() {
			ns, key := e.Name()
			v := p.keys.ValuesOf(e)
			if p.ownership == notOwned {
				v.A = nil
			}
			fn(ns, key, v)
		}
	}
}

// entries iterates over all entries. Their partitions are locked meanwhile.
func (d *directory) entries() iter.Seq2[*partition, keys.Entry] {
	return func(yield func(*partition, keys.Entry) bool) {
		for p := range d.locked() {
			for _, e := range p.keys.All() {
				if !yield(p, e) {
					return
				}
			}
		}
	}
}
