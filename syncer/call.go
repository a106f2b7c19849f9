package syncer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// call is the scratch memory of one operation: its checks, and the partitions of their keys, which
// are locked together.
type call struct {
	decide.Call
	present   int64 // Now, or the end of the operation's last wait
	targets   []target
	parts     []*partition
	refused   bool         // the store refuses one of the keys that were counted
	places    []keys.Place // see prefetch
	touched   uint64       // see keys.PrefetchPlaces
	admission admission
	pulse     Pulse // nil if this counter decides alone
	borrowed  bool  // some of the targets are counted for another counter
}

// begin prepares the scratch memory for an operation.
func (k *call) begin(op *twotier.Op, now int64) {
	k.Op, k.Now, k.present = op, now, now
	k.targets, k.parts, k.refused = k.targets[:0], k.parts[:0], false
	k.Changes = k.Changes[:0]
}

// updatePresent records that the operation has waited.
func (k *call) updatePresent() { k.present = k.targets[0].p.keys.Clock.Now() }

// prepare locates and validates everything before anything is locked.
func (k *call) prepare(d *directory, op *twotier.Op, now int64) error {
	k.begin(op, now)
	ts, err := twotier.Validate(op, d.namespaces.Ladder, now)
	if err != nil {
		return err
	}
	k.TS = ts
	k.locate(d)
	return nil
}

// locate finds the partitions of all checks, and adds up the counts of the other checks of the same
// key.
func (k *call) locate(d *directory) {
	for i := range k.Op.Checks {
		check := &k.Op.Checks[i]
		k.targets = append(k.targets, target{})
		t := &k.targets[i]
		d.locate(t, check)
		t.fresh = t.settles(k.Op)
		for j := range i {
			if o := &k.targets[j]; t.hasSameKey(o) {
				t.extra, o.extra = t.extra+o.check.N, o.extra+check.N
			}
		}
		k.parts = append(k.parts, t.p)
	}
	if k.Op.Imports() { // a limit will follow
		for i := range k.targets {
			k.targets[i].exact = true
		}
	}
	k.sortPartitions()
}

// sortPartitions sorts the partitions into locking order and removes duplicates.
func (k *call) sortPartitions() {
	if len(k.parts) > 1 {
		slices.SortFunc(k.parts, func(a, b *partition) int { return a.id - b.id })
		k.parts = slices.Compact(k.parts)
	}
}

// lock locks the partitions in ascending order, so that two operations never deadlock.
func (k *call) lock() {
	for _, p := range k.parts {
		p.mu.Lock()
	}
}

func (k *call) unlock() {
	if k.borrowed {
		for i := range k.targets {
			k.targets[i].credit, k.targets[i].borrowed = nil, false
		}
		k.borrowed = false
	}
	for _, p := range k.parts {
		p.mu.Unlock()
	}
}

// decide evaluates an operation once its keys are loaded and there is room for its counts.
func (k *call) decide(w *admission, res *twotier.Result) (counted bool, err error) {
	k.admission = *w
	for again := true; again; again = errors.Is(err, twotier.ErrBehind) &&
		k.admission.waitForRoom() {
		if err != nil {
			k.updatePresent()
		}
		res.Reset()
		if err = k.lockWarm(w.ctx, w.opt.LoadTimeout); err != nil {
			break
		}
		counted, err = k.evaluate(res)
		k.unlock()
	}
	err = k.admission.explainRefusal(err)
	k.admission.releaseRoom()
	*w, k.admission = k.admission, admission{}
	return counted, err
}

// claimCredits reports whether this counter decides about all keys, or has borrowed the others.
func (k *call) claimCredits() bool {
	for i := range k.targets {
		t := &k.targets[i]
		if !t.isRefusedByPartition(k.Op) {
			continue
		}
		if k.Op.Reserves() || !t.claimCredit(k.Op) {
			return false
		}
		k.borrowed = true
	}
	return true
}

// target is one check of an operation and the place of its key.
type target struct {
	check      *twotier.Check
	ns         []byte // empty for the default namespace
	p          *partition
	sp         *keys.Namespace
	spIdx      int
	hash       uint32
	ref        arena.Ref
	load       *rounds.PendingLoad
	absent     bool // the store holds nothing of the key
	exact      bool // a limit needs the key to be exact
	loaded     bool // the store was asked for this operation
	fresh      bool // the store has to be asked for this operation
	storeDown  bool // the store is known to be unreachable
	keyRefused bool // the store was asked for this operation, and refuses the key
	// absence is the store's report that it has nothing of a key.
	absence rounds.Absence
	extra   int64 // the sum that the other checks of the operation count of the key
	// credit is set if the key is another counter's, and this one may count it.
	credit   *loans.Credit
	borrowed bool // the same for reading
}

// noTicket stands for a count that the store is known to refuse.
const noTicket = math.MaxUint64

// add counts an Add without limits. The partition is locked. The count is in the store once the
// ticket is acknowledged.
func (t *target) add(op *twotier.Op, res *twotier.Result, ts, now int64,
	w *admission) (ticket uint64, err error) {
	p := t.p
	t.credit, t.borrowed = nil, false
	switch {
	case t.isRefusedByPartition(op) && !t.claimCredit(op):
		return 0, twotier.ErrNotOwner
	case p.phase >= draining:
		return 0, twotier.ErrClosed
	case !w.hasRoom(t):
		return 0, twotier.ErrBehind
	}
	r, e, err := t.ensureEntry(now)
	if err != nil {
		return 0, err
	}
	if t.credit != nil {
		ts = t.credit.Use(t.check.N, ts, time.Now())
	}
	t.countOne(e, ts, t.check.N, now)
	if p.keys.IsClean(e) {
		p.markDirty(r, e)
	}
	res.Allowed, res.Source = true, twotier.SourceMemory
	switch {
	case p.degraded():
		res.Degraded, res.Source = true, twotier.SourceDegraded
	case p.ownership == notOwned:
		res.Source = t.source()
	}
	res.AddCheck().TS = ts
	if e.HasFlag(keys.FlagParked) {
		return noTicket, nil
	}
	return p.dirty.LastTicket, nil
}

// ensureEntry finds or makes the key's entry, and marks it as used now. The partition is locked.
func (t *target) ensureEntry(now int64) (arena.Ref, keys.Entry, error) {
	p := t.p
	if p.phase >= closed {
		return 0, nil, twotier.ErrClosed
	}
	sec := p.keys.Clock.Seconds(now)
	r := p.keys.Find(t.hash, t.ns, t.check.Key)
	if r == 0 {
		words := keys.Words(t.ns, t.check.Key)
		if err := p.admitKey(t.spIdx, words, sec); err != nil {
			p.keys.Stored.Add(KeyHash(t.ns, t.check.Key)) // others may count it in the store
			return 0, nil, err
		}
		r = p.keys.Insert(t.hash, t.ns, t.check.Key, t.spIdx)
		e := p.keys.EntryAt(r)
		e.SetLastUsed(sec)
		e.SetFlags(keys.FlagCold)
		if t.absent || t.isKnownAbsent() {
			p.setWarm(e)
		}
		return r, e, nil
	}
	e := p.keys.EntryAt(r)
	e.SetLastUsed(sec)
	if p.memory.pool.Exhausted() && !p.makeRoomBeside(r, p.keys.GrowthOf(e, t.check.Values), sec) {
		return 0, nil, fmt.Errorf("%w: no memory for more buckets", twotier.ErrOverload)
	}
	return r, e, nil
}

// countOne counts n events of the target's key, or adds its values, at a time.
func (t *target) countOne(e keys.Entry, ts, n, now int64) {
	in, l := &t.p.keys, t.sp.Ladder
	if t.check.IsValues() {
		in.See(e, t.check.Values, ts, now, t.sp.MostValues)
		return
	}
	in.Count(e, l, ts, n, now)
	if ts > now && n > 0 {
		in.MarkAhead(e, l, ts, now)
	}
}

// locate finds the partition and namespace of a check.
func (d *directory) locate(t *target, check *twotier.Check) {
	t.check = check
	if !keys.IsDefault(check.NS) {
		t.ns = check.NS
		t.spIdx = d.namespaces.Index(check.NS)
	}
	t.sp = d.namespaces.At(t.spIdx)
	t.p = d.partitionOf(check)
	t.hash, t.exact = d.namespaces.Hash(t.ns, check.Key), false
	for i := range check.Limits {
		t.exact = t.exact || t.sp.Ladder.Needs(check.Limits[i].Max)
	}
}

// settles reports whether the target is part of the settlement of a hold: the mark that it leaves,
// or counts that it takes back. Another counter may have made or settled the hold while both took
// themselves for the owner, and no report of the store that came before the settlement excludes it.
// So a settlement reads the store first, as long as the store can be asked.
func (t *target) settles(op *twotier.Op) bool {
	return op.Kind == twotier.Acquire && (t.check.N < 0 || t.sp.Marks)
}

// hasSameKey reports whether two targets have the same key.
func (t *target) hasSameKey(o *target) bool {
	return o.p == t.p && o.hash == t.hash && string(o.ns) == string(t.ns) &&
		string(o.check.Key) == string(t.check.Key)
}

// name returns the name of the target's key that is unique in its partition.
func (t *target) name() string { return rounds.LoadName(t.ns, t.check.Key) }

// isRefusedByPartition reports whether the target's partition accepts no operations now, see
// refuses. Only the owner decides about leases: nobody else knows all that are open.
func (t *target) isRefusedByPartition(op *twotier.Op) bool {
	return t.p.refuses((op.AllowNonOwner || t.check.InPlace) && !t.check.IsLease())
}

// countedKey returns the target as a key to wait for.
func (t *target) countedKey() countedKey {
	return countedKey{hash: t.hash, ns: t.ns, key: t.check.Key}
}

// isKnownAbsent reports whether the store certainly has nothing of a target's key, which is not in
// memory. If that is not known, it has the list read.
func (t *target) isKnownAbsent() bool {
	p := t.p
	if p.keyReader == nil || p.ownership != owned {
		return false
	}
	if !p.hasAllKeys() {
		p.requestList()
		return false
	}
	if p.keys.Stored.Has(KeyHash(t.ns, t.check.Key)) {
		return false
	}
	p.unread++
	return true
}

// setAtLimit records whether the target is at a limit, after a decision. Keys at a limit are kept
// in memory longer than others.
func (t *target) setAtLimit(at bool) {
	switch {
	case t.ref == 0:
	case at:
		t.p.keys.EntryAt(t.ref).SetFlags(keys.FlagLimit)
	default:
		t.p.keys.EntryAt(t.ref).ClearFlags(keys.FlagLimit)
	}
}
