package syncer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
	"twotier.dev/twotier/syncer/store"
)

// evaluate decides an operation whose partitions are locked and whose keys are as warm as they will
// get, and counts if the decision allows it. It reports whether anything was counted.
func (k *call) evaluate(res *twotier.Result) (counted bool, err error) {
	k.markUsed()
	if err := k.learn(); err != nil {
		return false, err
	}
	switch k.Op.Kind {
	case twotier.Add:
		return true, k.add(res)
	case twotier.Acquire:
		return k.acquire(res)
	}
	err = k.Compare(res)
	k.setSource(res)
	return false, err
}

// add counts an Add and compares it with its limits.
func (k *call) add(res *twotier.Result) error {
	if err := k.checkTaken(); err != nil {
		return err
	}
	if err := k.CheckReach(); err != nil {
		return err
	}
	k.Changes = k.Changes[:0]
	k.AddCounts(false)
	if err := k.apply(); err != nil {
		return err
	}
	k.learnCounts()
	if err := k.Compare(res); err != nil {
		return err
	}
	k.setSource(res)
	k.SetTimes(res)
	k.correctTimes(res)
	return nil
}

// acquire decides an Acquire and carries out what the decision changes.
func (k *call) acquire(res *twotier.Result) (counted bool, err error) {
	if err := k.Acquire(res, k.Op.Reserves()); err != nil {
		return false, err
	}
	for i := range k.targets {
		if t := &k.targets[i]; t.credit == nil {
			t.setAtLimit(res.Checks[i].Refused)
		}
	}
	k.setSource(res)
	reserves := k.Op.Reserves() && res.Allowed && !k.Op.DryRun
	takes := func(c decide.Change) bool { return c.N < 0 }
	if reserves || slices.ContainsFunc(k.Changes, takes) {
		if err := k.checkTaken(); err != nil {
			return false, err
		}
	}
	if err := k.apply(); err != nil {
		return false, err
	}
	if reserves {
		if err := k.checkRoom(); err != nil {
			return false, err
		}
		k.reserve()
	}
	k.correctTimes(res)
	return reserves || len(k.Changes) > 0, nil
}

// learn collects the knowledge about the keys.
func (k *call) learn() error {
	acquires := k.Op.Kind == twotier.Acquire
	k.Keys = k.Keys[:0]
	for i := range k.targets {
		t := &k.targets[i]
		switch {
		case acquires && t.keyRefused:
			return errKeyRefused
		case t.check.IsLease() && t.sp.DenyCold && t.lacksStoreCounts():
			return errMarkUnknown
		}
		k.Keys = append(k.Keys, decide.Key{Extra: t.extra, Doubtful: acquires && t.storeDown &&
			(t.sp.DenyCold || twotier.IsImported(t.ns))})
		known := &k.Keys[i]
		if len(t.p.reservations) > 0 {
			known.Reserved = t.p.reservations.ReservedEvents(t.ns, t.check.Key)
		}
		if t.credit != nil {
			known.Credit, k.Wall = t.credit, time.Now()
		}
		if len(t.p.shared) > 0 {
			if shared := t.sharedKey(); shared != nil {
				known.Lent, k.Wall = shared, time.Now()
			}
		}
	}
	k.learnCounts()
	return nil
}

// learnCounts collects the counts of the keys.
func (k *call) learnCounts() {
	for i := range k.targets {
		t := &k.targets[i]
		if k.Keys[i].View = k.view(t); t.check.IsValues() && t.ref != 0 {
			k.Keys[i].Values = t.p.keys.ValuesOf(t.p.keys.EntryAt(t.ref))
		}
	}
}

// apply carries out the changes, or none of them if it returns an error.
func (k *call) apply() error {
	for i := range k.Changes {
		switch t := &k.targets[k.Changes[i].Check]; {
		case t.p.phase >= draining:
			return twotier.ErrClosed
		case !k.admission.hasRoom(t):
			return twotier.ErrBehind
		}
	}
	for i := range k.Changes {
		t := &k.targets[k.Changes[i].Check]
		r, _, err := t.ensureEntry(k.present)
		if err != nil {
			return err
		}
		if t.ref = r; t.p.keys.NoStore && i < len(k.Changes)-1 {
			defer t.p.keys.Unpin(t.p.keys.Pin(r)) // the next key may need room
		}
	}
	for i := range k.Changes {
		k.applyChange(&k.Changes[i])
	}
	return nil
}

// applyChange carries out a change. The entry of its key exists.
func (k *call) applyChange(c *decide.Change) {
	t := &k.targets[c.Check]
	e := t.p.keys.EntryAt(t.ref)
	if t.exact {
		e.SetExact()
	}
	switch c.Kind {
	case decide.Mark:
		t.p.keys.AddPending(e, leaparray.Moment(c.At), c.N)
	case decide.Take:
		t.p.keys.SubtractNewest(e, t.sp.Ladder, k.Now, -c.N)
	default:
		if t.credit != nil {
			c.At = t.credit.Use(c.N, c.At, time.Now())
		}
		t.countOne(e, c.At, c.N, k.Now)
	}
	if c.Kind == decide.Mark {
		k.followMark(t, e)
	}
	if t.p.keys.IsClean(e) {
		t.p.markDirty(t.ref, e)
	}
	k.refused = k.refused || e.HasFlag(keys.FlagParked)
}

// followMark follows a change of a companion, such as a ban or a lease.
func (k *call) followMark(t *target, e keys.Entry) {
	if t.check.IsBan() {
		t.setAtLimit(true)
	}
	if t.p.keys.NoStore {
		t.p.keys.FollowKey(e, k.Now)
	}
}

// correctTimes corrects the times at which events were counted: a credit moves them.
func (k *call) correctTimes(res *twotier.Result) {
	for i := range k.Changes {
		if c := &k.Changes[i]; c.Kind == decide.Count {
			res.Checks[c.Check].TS = c.At
		}
	}
}

// markUsed marks the keys as used. A refusal counts as a use, like a count. Keys that are only read
// are kept longer than unused ones, but may be evicted at once to make room for the next read.
func (k *call) markUsed() {
	age := uint32(0)
	if k.Op.Kind == twotier.Count {
		age = keys.EvictableAge
	}
	for i := range k.targets {
		t := &k.targets[i]
		if r := t.p.keys.Find(t.hash, t.ns, t.check.Key); r != 0 {
			sec := t.p.keys.Clock.Seconds(k.present)
			if e := t.p.keys.EntryAt(r); e.IdleSeconds(sec) > age {
				e.SetLastUsed(sec - age)
			}
		}
	}
}

// setSource records the origin of the answer.
func (k *call) setSource(res *twotier.Result) {
	res.Source = twotier.SourceMemory
	for i := range k.targets {
		t := &k.targets[i]
		if t.lacksStoreCounts() || t.p.degraded() {
			res.Degraded, res.Source = true, twotier.SourceDegraded
		} else if t.p.ownership == notOwned && !res.Degraded {
			res.Source = t.source()
		}
		var shared *loans.Key
		if len(t.p.shared) > 0 {
			shared = t.sharedKey()
		}
		if shared != nil && !res.Degraded {
			res.AgeMS = max(res.AgeMS, time.Since(shared.ReadAt).Milliseconds())
		} else if k.Op.Kind == twotier.Count || res.Degraded || t.p.ownership == notOwned {
			res.AgeMS = max(res.AgeMS, t.p.store.Age(time.Now()))
		}
	}
}

// view returns the synced and pending counts of the target's key, which will be as exact as its
// limits need it from now on.
func (k *call) view(t *target) leaparray.View {
	v := leaparray.View{Ladder: t.sp.Ladder, Now: k.Now}
	if t.ref = t.p.keys.Find(t.hash, t.ns, t.check.Key); t.ref != 0 {
		e := t.p.keys.EntryAt(t.ref)
		if t.exact {
			e.SetExact()
		}
		v.A, v.B = t.p.keys.SyncedOf(e), t.p.keys.PendingOf(e)
	}
	return v
}

// countedKey is a key that an operation has counted, while the operation waits for the store.
type countedKey struct {
	hash    uint32
	ns, key []byte
	at      int // position of the operation in its batch
	// err is set when the ticket is acknowledged, if the store nevertheless lacks the counts of
	// this key.
	err error
}

// awaitAck waits until all tickets up to this one are acknowledged. It returns the latest
// acknowledged mark, and an error if the store lacks counts of these keys by then.
func (p *partition) awaitAck(ctx context.Context, ticket uint64,
	keys ...countedKey) (store.Mark, error) {
	mark, err := p.awaitAckIf(ctx, ticket, keys, func() bool { return true })
	for i := range keys {
		err = cmp.Or(err, keys[i].err)
	}
	return mark, err
}

// awaitAckIf is awaitAck, but leaves the errors of single keys to the caller, and returns
// errFailing if it would have to wait while worthwhile returns false. worthwhile is called with the
// partition locked.
func (p *partition) awaitAckIf(ctx context.Context, ticket uint64, keys []countedKey,
	worthwhile func() bool) (store.Mark, error) {
	for {
		mark, news, err := p.ackedMark(ticket, keys, worthwhile)
		if news == nil {
			return mark, err
		}
		p.flusher.schedule(p)
		select {
		case <-news:
		case <-ctx.Done():
			return store.Mark{},
				fmt.Errorf("%w: counted in memory, but the store has not acknowledged it in time",
					twotier.ErrUnknownOutcome)
		}
	}
}

// ackedMark returns the latest acknowledged mark if it covers a ticket, and sets the errors of the
// keys. If the acknowledgement may still come, it returns a channel that is closed when the caller
// should look again.
func (p *partition) ackedMark(ticket uint64, keys []countedKey,
	worthwhile func() bool) (mark store.Mark, news <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dirty.HandedOff(ticket):
		return store.Mark{}, nil, errHandedOff
	case p.dirty.AckedTicket >= ticket && p.outbox.ImportsSent():
		// Rounds taken over from other counters draw no tickets. They are sent before all others,
		// so they must be acknowledged too.
		for i := range keys { // now: after a handoff of the partition they are unknown
			keys[i].err = p.refusalError(keys[i].hash, keys[i].ns, keys[i].key, ticket)
		}
		return p.outbox.Mark, nil, nil
	case p.phase == stopped:
		return store.Mark{}, nil, errStopped
	case !worthwhile():
		return store.Mark{}, nil, errFailing
	}
	p.dirty.MakeDue()
	return store.Mark{}, p.settled.nextNews(), nil
}

// endAllWaits ends all waits, because nothing will be settled any more.
func (p *partition) endAllWaits() {
	p.mu.Lock()
	p.phase = stopped
	p.mu.Unlock()
	p.wakeWaiters()
}

// lastTicket returns the ticket of the latest count.
func (p *partition) lastTicket() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dirty.LastTicket
}

// flushUpTo flushes everything up to a ticket without waiting for the clock.
func (p *partition) flushUpTo(ticket uint64) {
	p.mu.Lock()
	flushed := p.dirty.AckedTicket >= ticket
	if !flushed {
		p.dirty.MakeDue()
	}
	p.mu.Unlock()
	if !flushed {
		p.flusher.schedule(p)
	}
}
