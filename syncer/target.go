package syncer

import (
	"fmt"
	"math"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// target is one check of an operation and where its key is.
type target struct {
	check      *Check
	ns         []byte // empty for the default namespace
	p          *partition
	sp         *space
	spIdx      int
	hash       uint32
	ref        arena.Ref
	load       *pendingLoad
	askedAhead *pendingLoad // a load that askAhead asked for, not looked at yet
	absent     bool         // the store holds nothing of the key
	loaded     bool         // the store was asked for this operation
	storeDown  bool         // the store can't be asked
	// absence is what the store said of a key that it has nothing of.
	absence absence
	extra   int64
	// allowance is set while another counter decides about the key, and this one may count it.
	allowance *allowance
	borrowed  bool // the same for reading
	// stamped is the time at which events of the allowance were counted.
	stamped int64
}

// noTicket stands for a count that the store is known to refuse.
const noTicket = math.MaxUint64

// parked reports whether the store refuses the key. It locks the partition.
func (t *target) parked() bool {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	r := t.p.keys.find(t.hash, t.ns, t.check.Key)
	return r != 0 && t.p.keys.entry(r).has(flagParked)
}

// add counts an Add without limits. The partition is locked. The count is in the store once the
// ticket is acknowledged.
func (t *target) add(op *Op, res *Result, ts, now int64, w *admission) (ticket uint64, err error) {
	p := t.p
	t.allowance, t.borrowed = nil, false
	switch {
	case p.refuses(op.AllowNonOwner) && !t.borrow(op):
		return 0, ErrNotOwner
	case p.draining:
		return 0, ErrClosed
	case !w.admits(t):
		return 0, ErrBehind
	}
	r, e, err := t.entry(now)
	if err != nil {
		return 0, err
	}
	ts = t.allowance.stamp(ts)
	s := t.sp.ladder.Stamp(ts)
	p.keys.count(e, t.sp.ladder, &s, t.check.N, isLate(t.sp.ladder, ts, now))
	p.enlist(r, e)
	t.allowance.use(t.check.N)
	res.Allowed, res.Source = true, t.source()
	if p.degraded() {
		res.Degraded, res.Source = true, SourceDegraded
	}
	res.AddCheck().TS = ts
	if e.has(flagParked) {
		return noTicket, nil
	}
	return p.dirty.lastTicket, nil
}

// entry finds or makes the key's entry. The partition is locked.
func (t *target) entry(now int64) (arena.Ref, entry, error) {
	p := t.p
	if p.closed {
		return 0, nil, ErrClosed
	}
	sec := p.keys.clock.seconds(now)
	r := p.keys.find(t.hash, t.ns, t.check.Key)
	if r == 0 {
		words := entryWords(t.ns, t.check.Key, t.sp.ladder.Len())
		if err := p.admitKey(t.spIdx, words, sec); err != nil {
			p.keys.stored.add(KeyHash(t.ns, t.check.Key)) // it may be counted in the store instead
			return 0, nil, err
		}
		r = p.keys.insert(t.hash, t.ns, t.check.Key, t.spIdx, t.sp.ladder.Len())
		e := p.keys.entry(r)
		e.setUsed(sec)
		e.set(flagCold)
		if t.absent || t.unlisted() {
			p.setWarm(e)
		}
		return r, e, nil
	}
	e := p.keys.entry(r)
	e.setUsed(sec)
	if p.memory.pool.Exhausted() && !p.makeRoom(t.sp.ladder.MaxWords(), sec) {
		return 0, nil, fmt.Errorf("%w: no memory for more buckets", ErrOverload)
	}
	return r, e, nil
}

// isLate reports whether a time is so far back that some level may no longer keep it.
func isLate(l *leaparray.Ladder, ts, now int64) bool { return ts < now-l.FineSpan()/2 }
