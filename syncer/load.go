package syncer

import (
	"errors"
	"time"
	"twotier.dev/twotier/syncer/internal/keys"
)

// loading reads keys that operations wait for, in rounds that may be in flight next to a flushing
// one. The loaded counts are exactly the store's, without this counter's pending ones, because such
// a round includes no key that another round may be changing. The methods are called with the
// partition locked.
type loading struct {
	pendingLoads
	*ledger
	scratch *scratch
	width   *readWidth // the loading batcher's
	budget  budget
	totals  *totals
}

// cut returns a round that loads the keys that operations wait for, or nil if none can be loaded
// now.
func (l *loading) cut() *round {
	r := l.scratch.round(l.ledger)
	r.Aside, r.mostReads = true, l.width.left()
	unknown := l.addWaiting(r)
	if len(r.Keys) == 0 && !l.probe {
		l.scratch.recycle(l.ledger, r)
		return nil
	}
	// As long as the version is not known, a load has to learn it, or later changes by others would
	// go unnoticed. And before a key with synced counts is loaded, the store must confirm that it
	// has lost nothing. Otherwise the load would replace counts that only memory still has with the
	// store's remains.
	r.ReadOnly = l.store.known && unknown && len(r.Keys) > 0
	r.Acked = l.outbox.acked
	l.begin(r, l.store.generation)
	return r
}

// addWaiting adds the keys that operations wait for. It reports whether none of them has synced
// counts in memory.
func (l *loading) addWaiting(r *round) (unknown bool) {
	unknown = true
	for name, w := range l.waiting {
		if r.full() {
			break
		}
		if !w.waited() {
			delete(l.waiting, name)
			continue
		}
		if w.exclusive {
			continue
		}
		if at := l.keys.Find(w.hash, w.ns, w.key); at != 0 {
			e := l.keys.Entry(at)
			if l.changing(w.hash, e) {
				continue
			}
			unknown = unknown && e.Synced() == 0
		}
		l.moveTo(r, name)
		l.loadKey(r, w)
	}
	return unknown
}

// loadKey adds a key to a round that only loads it.
func (b *ledger) loadKey(r *round, w *pendingLoad) {
	k := r.addKey(w.ns, w.key)
	r.reads += readsOf(b.keys.Names.Ladder(w.ns))
	k.hash, k.Load = w.hash, true
	k.adds = len(r.buckets)
}

// loadOf returns the pending load of a key in a round, or nil if no operation waits for it.
func (r *round) loadOf(k *part) *pendingLoad {
	if len(r.loads) == 0 {
		return nil
	}
	return r.loads[loadName(k.NS, k.Key)]
}

// loadOutcome is the outcome of a round that loads.
type loadOutcome uint8

const (
	loadAnswered loadOutcome = iota
	// loadFailed: its keys are requested again after a while. The store is late, refuses to read,
	// or is unreachable.
	loadFailed
	// loadFlushes: its keys have to wait for a round without overlap.
	loadFlushes
)

// settle processes the outcome of a round from cut.
func (l *loading) settle(r *round) (outcome loadOutcome) {
	valid := l.end(l.store.generation)
	switch {
	case errors.Is(r.Err, ErrLate):
		l.postpone(r, time.Now())
		return loadFailed
	case errors.Is(r.Err, ErrRefused):
		l.refuse(r, time.Now())
		return loadFailed
	case r.Err != nil:
		l.fail(r, time.Now())
		return loadFailed
	case r.Lost:
		// A round without overlap will find the loss, and restore the data.
		l.putBack(r, false)
		l.lossSeen, outcome = true, loadFlushes
	case !valid:
		// Others have changed the partition, or it has changed hands. If the keys were loaded next
		// to other rounds again, this could go on for ever.
		l.putBack(r, true)
		outcome = loadFlushes
	default:
		l.takeAll(r)
	}
	l.retry.succeed()
	l.store.contactAt = time.Now()
	l.scratch.recycle(l.ledger, r)
	return outcome
}

// takeAll applies everything that a round has loaded.
func (l *loading) takeAll(r *round) {
	if !l.store.known {
		l.learn(r)
	}
	l.store.learnLoaded(versionOf(r))
	l.learnFirst(r)
	sec := l.keys.Clock.Second()
	for i := range r.parts {
		k := &r.parts[i]
		if w := r.loadOf(k); w != nil {
			delete(r.loads, loadName(k.NS, k.Key))
			l.take(k, w, sec)
		}
	}
}

// take applies the store's counts of one key, which need not be in memory yet.
func (l *loading) take(k *part, w *pendingLoad, sec uint32) {
	l.totals.loads.Add(1)
	at, alien := l.keys.Find(k.hash, k.NS, k.Key), CheckCounts(k.Loaded)
	switch {
	case k.Err != nil:
		w.tell(k.Err, absence{})
		return
	case alien != nil:
		w.tell(alien, absence{})
		return
	case at == 0 && len(k.Loaded) == 0:
		w.tell(nil, l.absent())
		return
	case at == 0:
		i := l.keys.Names.Index(k.NS)
		if err := l.budget.admitKey(i, keys.Words(k.NS, k.Key), sec); err != nil {
			w.tell(err, absence{})
			return
		}
		at = l.keys.Insert(k.hash, k.NS, k.Key, i)
	}
	e := l.keys.Entry(at)
	e.SetUsed(sec)
	if e.Synced() == 0 {
		l.budget.easeSynced(sec)
	}
	l.takeRead(e, k.Loaded)
	w.tell(nil, absence{})
}
