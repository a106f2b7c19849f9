package syncer

import (
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/loans"
	"twotier.dev/twotier/syncer/internal/room"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// Held is the state of a key in memory.
type Held struct {
	Found, Warm, Clean bool
	// Idle is how many seconds ago the key was last used.
	Idle int64
	// Resetting reports that a reset has not reached the store yet.
	Resetting bool
	// Synced and Pending are the counts by bucket. A value counts one, in one of them.
	Synced, Pending map[leaparray.Stretch]int64
}

// Held returns the state of a key in memory, at one moment.
func (c *Counter) Held(ns, key []byte) (h Held) {
	var t target
	c.locate(&t, &twotier.Check{NS: ns, Key: key})
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	r := t.p.keys.Find(t.hash, t.ns, key)
	if r == 0 {
		return h
	}
	e := t.p.keys.EntryAt(r)
	h = Held{Found: true, Warm: t.p.warm(e), Clean: e.IsClean(),
		Idle:      int64(e.IdleSeconds(t.p.keys.Clock.Second())),
		Resetting: t.p.resetting(t.hash, e),
		Synced:    map[leaparray.Stretch]int64{}, Pending: map[leaparray.Stretch]int64{}}
	v := t.p.keys.ValuesOf(e)
	for i := range v.A.Len() {
		hash, _ := v.A.At(i)
		h.Synced[leaparray.ValueAt(hash)] = 1
	}
	for i := range v.B.Len() {
		if hash, _ := v.B.At(i); v.A.Seen(hash) == 0 {
			h.Pending[leaparray.ValueAt(hash)] = 1
		}
	}
	t.sp.Ladder.EachCell(t.p.keys.SyncedOf(e), func(at leaparray.Stretch, n int64) bool {
		h.Synced[at] += n
		return true
	})
	t.sp.Ladder.EachCell(t.p.keys.PendingOf(e), func(at leaparray.Stretch, n int64) bool {
		h.Pending[at] += n
		return true
	})
	return h
}

// HeldValues is when the values of a key in memory were last seen.
type HeldValues struct {
	Warm bool
	Seen map[uint64]int64
}

// Values returns the values of a key in memory, at one moment.
func (c *Counter) Values(ns, key []byte) (h HeldValues) {
	var t target
	c.locate(&t, &twotier.Check{NS: ns, Key: key})
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if r := t.p.keys.Find(t.hash, t.ns, key); r != 0 {
		e := t.p.keys.EntryAt(r)
		h = HeldValues{Warm: t.p.warm(e), Seen: map[uint64]int64{}}
		t.p.keys.ValuesOf(e).Each(func(hash uint64, seen int64) { h.Seen[hash] = seen })
	}
	return h
}

// Loads returns the number of keys to load, and how many of them operations wait for.
func (c *Counter) Loads() (all, waited int) {
	for p := range c.locked() {
		var inFlight map[string]*rounds.PendingLoad
		if p.loads.UnderWay != nil {
			inFlight = p.loads.UnderWay.Round.Loads
		}
		for _, loads := range []map[string]*rounds.PendingLoad{p.loads.Waiting, inFlight} {
			for _, w := range loads {
				if all++; w.HasWaiters() {
					waited++
				}
			}
		}
	}
	return all, waited
}

// Share starts or ends counting a key in several counters at the same time, without a loan.
func (c *Counter) Share(ns, key []byte, on bool) error {
	var t target
	c.locate(&t, &twotier.Check{NS: ns, Key: key})
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	k, err := t.makeShared(c.opt.Now())
	if err != nil {
		return err
	}
	if k.Credit = nil; on {
		k.Credit = loans.NewCredit(&twotier.LoanRequest{})
	}
	t.p.unshareIdle(c.opt.Now())
	return nil
}

// PendingFound counts the pending buckets by scanning every key. It also returns the running sum.
func (c *Counter) PendingFound() (found, kept int64) {
	for p := range c.locked() {
		kept += p.keys.PendingBuckets
		for _, e := range p.keys.All() {
			found += int64(p.keys.ValuesOf(e).B.Len())
			p.keys.Ladder(e).EachCell(p.keys.PendingOf(e), func(leaparray.Stretch, int64) bool {
				found++
				return true
			})
		}
	}
	return found, kept
}

// ReserveUsed returns how many bytes of the reserve for small partitions are in use.
func (c *Counter) ReserveUsed() int { return max(0, 8*c.memory.pool.ReserveWordsUsed()) }

// Listed returns, for each partition, the number of hashes of stored keys that are not in memory.
func (c *Counter) Listed() (all []int) {
	for p := range c.locked() {
		all = append(all, p.keys.Stored.Len())
	}
	return all
}

// HugePages reports whether counters map their memory.
const HugePages = slab.OffHeap

// Room returns how many keys wait for the store, and how many operations have room or wait for it,
// in all flushers.
func (c *Counter) Room() (owed, granted, waiting int64) {
	for _, l := range c.flushers {
		s := l.room.Stats()
		owed, granted, waiting = owed+s.Owed, granted+s.Granted, waiting+s.Waiting
	}
	return owed, granted, waiting
}

// MostRoom returns how many new keys may wait for the store, in all flushers.
func (c *Counter) MostRoom() (n int64) {
	for _, l := range c.flushers {
		n += l.room.Stats().Most[room.NewKey]
	}
	return n
}

// ShiftsAwake returns how many shifts are not resting.
func (c *Counter) ShiftsAwake() (n int) {
	for _, l := range c.flushers {
		for _, h := range l.shifts.All() {
			if !h.IsResting() {
				n++
			}
		}
	}
	return n
}

// CheckStates returns an error if the states of a partition contradict each other.
func (c *Counter) CheckStates() error {
	for p := range c.locked() {
		for rule, holds := range p.rules() {
			if !holds {
				return fmt.Errorf("partition %d: not true that %s: %v, phase %d, %+v, %d queued, "+
					"flight %v, dirty %v", p.id, rule, p.ownership, p.phase, p.store.Report,
					len(p.outbox.Queue), p.outbox.Flight != nil, !p.dirty.IsEmpty())
			}
		}
	}
	return nil
}

// rules are what must hold between the states of a partition, and whether it does.
func (p *partition) rules() map[string]bool {
	exclusive := false
	for _, l := range p.loads.Waiting {
		exclusive = exclusive || l.Exclusive
	}
	isSealed := p.ownership.isSealed()
	return map[string]bool{
		"only what is sealed has rounds to hand off": isSealed || p.handoff.rounds == nil,
		"nothing is sent, dirty or restored once it is sealed": !isSealed || !p.outbox.Sent &&
			p.outbox.IsEmpty() && p.dirty.IsEmpty() && !p.restoration.active(),
		"what is with the store is in flight": !p.outbox.Sent || p.outbox.Flight != nil ||
			p.restoration.active() && p.restoration.job.round != nil,
		"only what waits may have been sent by others": !p.outbox.MaybeSent || isSealed ||
			!p.outbox.IsEmpty(),
		"loads that need a round of their own are counted": !exclusive || p.loads.Exclusive,
		"the store has reported what it is said to have": p.store.IsKnown() ||
			p.store.Reported == store.Told{},
		"who has closed shares nothing": p.phase < closed || isSealed || len(p.shared) == 0,
	}
}
