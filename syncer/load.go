package syncer

import (
	"context"
	"errors"
	"sync"
	"time"

	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// loading reads keys that operations wait for, in rounds that may be in flight next to a flushing
// one. The loaded counts are exactly the store's, without this counter's pending ones, because such
// a round includes no key that another round may be changing. The methods are called with the
// partition locked.
type loading struct {
	rounds.PendingLoads
	*ledger
	scratch *scratch
	width   *readWidth // the loading batcher's
	budget  budget
	totals  *totals
}

// cut returns a round that loads the keys that operations wait for, or nil if none can be loaded
// now.
func (l *loading) cut() *rounds.Round {
	r := l.scratch.round(l.ledger)
	r.Aside, r.MostReads = true, l.width.remaining()
	unknown := l.addWaiting(r)
	if len(r.Keys) == 0 && !l.Probe {
		l.scratch.recycle(l.ledger, r)
		return nil
	}
	// As long as the version is not known, a load has to learn it, or later changes by others would
	// go unnoticed. And before a key with synced counts is loaded, the store must confirm that it
	// has lost nothing. Otherwise the load would replace counts that only memory still has with the
	// store's remains.
	r.ReadOnly = l.store.IsKnown() && unknown && len(r.Keys) > 0
	r.Acked = l.outbox.Acked
	l.Begin(r, l.store.Generation)
	return r
}

// addWaiting adds the keys that operations wait for. It reports whether none of them has synced
// counts in memory.
func (l *loading) addWaiting(r *rounds.Round) (unknown bool) {
	unknown = true
	for name, w := range l.Waiting {
		if r.Full() {
			break
		}
		if !w.HasWaiters() {
			delete(l.Waiting, name)
			continue
		}
		if w.Exclusive {
			continue
		}
		if at := l.keys.Find(w.Hash, w.NS, w.Key); at != 0 {
			e := l.keys.EntryAt(at)
			if l.changing(w.Hash, e) {
				continue
			}
			unknown = unknown && !e.HasSynced()
		}
		l.MoveTo(r, name)
		l.addLoad(r, w)
	}
	return unknown
}

// addLoad adds a key to a round that only loads it.
func (b *ledger) addLoad(r *rounds.Round, w *rounds.PendingLoad) {
	k := r.AddKey(w.NS, w.Key)
	r.Reads += rounds.ReadsOf(b.keys.Names.Ladder(w.NS))
	k.Hash, k.Load = w.Hash, true
	k.AppendBuckets(r, nil)
}

// fail puts the keys of a round from cut back, to be requested again after a while: the store is
// late, refuses to read, or is unreachable.
func (l *loading) fail(r *rounds.Round) {
	l.End(l.store.Generation)
	l.PutBack(r, false)
	switch now := time.Now(); {
	case errors.Is(r.Err, store.ErrLate):
		l.Retry.Postpone(now)
	case errors.Is(r.Err, store.ErrRefused): // it may be loading its data
		l.Retry.Refuse(now)
	default:
		l.Probe = true // keep asking until the store can be read again, even if nobody waits
		l.Retry.Fail(now)
	}
}

// settle processes the answer to a round from cut. It reports whether its keys have to wait for a
// round without overlap.
func (l *loading) settle(r *rounds.Round) (flushes bool) {
	valid := l.End(l.store.Generation)
	flushes = r.Lost || !valid
	switch {
	case r.Lost:
		// A round without overlap will find the loss, and restore the data.
		l.PutBack(r, false)
		l.store.SuspectLoss()
	case !valid:
		// Others have changed the partition, or it has changed hands. If the keys were loaded next
		// to other rounds again, this could go on for ever.
		l.PutBack(r, true)
	default:
		l.applyAll(r)
	}
	l.Retry.Succeed()
	l.store.ContactAt = time.Now()
	l.scratch.recycle(l.ledger, r)
	return flushes
}

// applyAll applies everything that a round has loaded.
func (l *loading) applyAll(r *rounds.Round) {
	if !l.store.IsKnown() {
		l.applyAnswer(r)
	}
	l.store.ApplyLoadAnswer(r.Told())
	l.recordEmptyStore(r)
	sec := l.keys.Clock.Second()
	for i := range r.Parts {
		k := &r.Parts[i]
		if w := r.LoadOf(k); w != nil {
			delete(r.Loads, rounds.LoadName(k.NS, k.Key))
			l.applyLoad(k, w, sec)
		}
	}
}

// applyLoad applies the store's counts of one key, which need not be in memory yet.
func (l *loading) applyLoad(k *rounds.Part, w *rounds.PendingLoad, sec uint32) {
	l.totals.loads.Add(1)
	at, alien := l.keys.Find(k.Hash, k.NS, k.Key), CheckCounts(k.Loaded)
	switch {
	case k.Err != nil:
		w.Finish(k.Err, rounds.Absence{})
		return
	case alien != nil:
		w.Finish(alien, rounds.Absence{})
		return
	case at == 0 && len(k.Loaded) == 0:
		w.Finish(nil, rounds.Absence{Known: true, Generation: l.store.Generation,
			Drops: l.keys.Drops})
		return
	case at == 0:
		i := l.keys.Names.Index(k.NS)
		if err := l.budget.admitKey(i, keys.Words(k.NS, k.Key), sec); err != nil {
			w.Finish(err, rounds.Absence{})
			return
		}
		at = l.keys.Insert(k.Hash, k.NS, k.Key, i)
	}
	e := l.keys.EntryAt(at)
	e.SetLastUsed(sec)
	if !e.HasSynced() {
		l.budget.makeRoomForSynced(sec)
	}
	l.applyRead(e, k.KeyRound)
	w.Finish(nil, rounds.Absence{})
}

const (
	// listsAtOnce is how many lists are read in one call.
	listsAtOnce = 64
	// readShare bounds the share of a store's time, as 1/readShare, that reading lists takes.
	readShare = 20
	// readPause bounds the pause between two calls.
	readPause = 5 * time.Second
	// hashesPerUnit is how many hashes take a store about as much time as an empty list.
	hashesPerUnit = 4096
)

// keyReader reads the lists of keys that partitions request, in the order of the requests.
type keyReader struct {
	store   Lister
	timeout time.Duration
	signal  signal
	unit    time.Duration // see busyTime

	mu    sync.Mutex
	queue []*partition
}

// newKeyReader returns a reader of the store's lists, or nil if it has none.
func newKeyReader(opt *Options) *keyReader {
	store, ok := opt.Store.(Lister)
	if !ok {
		return nil
	}
	return &keyReader{store: store, timeout: opt.RoundTimeout, signal: newSignal()}
}

// enqueue puts a partition into the queue. The partition's listing records whether it is there.
func (k *keyReader) enqueue(p *partition) {
	k.mu.Lock()
	k.queue = append(k.queue, p)
	k.mu.Unlock()
	k.signal.send()
}

// next removes and returns some partitions from the queue.
func (k *keyReader) next() []*partition {
	k.mu.Lock()
	defer k.mu.Unlock()
	some := k.queue[:min(listsAtOnce, len(k.queue))]
	k.queue = k.queue[len(some):]
	return some
}

// run reads lists until ctx is done.
func (k *keyReader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.signal:
		}
		for parts := k.next(); len(parts) > 0; parts = k.next() {
			k.readAll(ctx, parts)
		}
	}
}

// readAll reads the lists of some partitions to their ends.
func (k *keyReader) readAll(ctx context.Context, parts []*partition) {
	stamps := map[*partition]rounds.ListStamp{}
	for len(parts) > 0 && ctx.Err() == nil {
		begun, units := time.Now(), 0
		parts, units = k.readSome(ctx, parts, stamps)
		took := time.Since(begun)
		pause(ctx, min(readPause, readShare*k.busyTime(units, took)-took))
	}
}

// readSome reads on in the lists of some partitions. It returns the partitions whose lists go on,
// and the amount read in units of busyTime. stamps holds the partitions' stamps at their first
// read.
func (k *keyReader) readSome(ctx context.Context, parts []*partition,
	stamps map[*partition]rounds.ListStamp) (more []*partition, units int) {
	var readings []*reading
	var lists []*KeyList
	for _, p := range parts {
		if r := p.beginReading(); r != nil {
			if _, ok := stamps[p]; !ok {
				stamps[p] = r.stamp
			}
			readings, lists = append(readings, r), append(lists, &r.KeyList)
		}
	}
	if len(lists) == 0 {
		return nil, 0
	}
	try, cancel := context.WithTimeout(ctx, k.timeout)
	k.store.ListKeys(try, lists)
	cancel()
	for _, r := range readings {
		if r.Err == nil { // an immediate failure is no measure of the cost
			units += 1 + len(r.Hashes)/hashesPerUnit
		}
		if r.p.settleReading(r, stamps[r.p]) {
			more = append(more, r.p)
		}
	}
	return more, units
}

// busyTime estimates how long a read of this many units has kept the store busy from its duration.
// On a busy store, a read spends most of its time waiting for others, so the fastest recent read
// determines the cost of a unit.
func (k *keyReader) busyTime(units int, took time.Duration) time.Duration {
	if units == 0 {
		return 0
	}
	each := took / time.Duration(units)
	if k.unit += k.unit / 64; k.unit == 0 || each < k.unit {
		k.unit = each
	}
	return k.unit * time.Duration(units)
}

// pause waits for a while, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
