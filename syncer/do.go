package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// Do runs one operation. It fills in res, whose memory it reuses. After an error res is meaningless
// and nothing was counted, except with ErrUnknownOutcome. Other errors are ErrClosed, ErrOverload,
// ErrUnavailable and *InvalidError.
func (c *Counter) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if err := c.durability.check(ctx, op); err != nil {
		return err
	}
	res.Reset()
	if err := c.closedTo(op); err != nil {
		return err
	}
	w := admission{ctx: ctx, opt: &c.opt}
	if unconditional(op) {
		return c.addOnly(&w, op, res, c.opt.Now())
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	if err := k.prepare(&c.directory, op, c.opt.Now()); err != nil {
		return err
	}
	if op.Reserves() {
		k.reservation = c.newReservation(k)
	}
	counted, err := k.decide(&w, res)
	switch {
	case err != nil || !c.durability.waits(op):
		return err
	case k.refused:
		return errRefusedKey
	case !counted:
		return nil
	}
	return k.commit(ctx, &c.durability)
}

// closedTo returns ErrClosed if the counter no longer accepts operations of this kind.
func (c *Counter) closedTo(op *twotier.Op) error {
	if c.closed.Load() || !op.Reads() && c.draining.Load() {
		return twotier.ErrClosed
	}
	return nil
}

// DoAll runs operations in order and sets Err in each result. Operations that need the past of keys
// not in memory wait for all those loads together, and operations that need the store's
// acknowledgement wait for it together.
func (c *Counter) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	kept, at := c.durability.thoseKept(ctx, ops, res)
	if at == nil {
		c.runBatch(ctx, ops, res)
		return
	}
	out := make([]twotier.Result, len(kept))
	c.runBatch(ctx, kept, out)
	for k, i := range at {
		res[i] = out[k]
	}
}

// addOnly runs an Add without limits, which needs no knowledge of the key's past.
func (c *Counter) addOnly(w *admission, op *twotier.Op, res *twotier.Result, now int64) error {
	check := &op.Checks[0]
	var t target
	c.locate(&t, check)
	ts, err := op.Moment(t.sp.Ladder, now)
	if err != nil {
		return err
	}
	p, ticket := t.p, uint64(0)
	for again := true; again; again = errors.Is(err, twotier.ErrBehind) && w.wait() {
		if err != nil {
			now = c.opt.Now() // it has waited
		}
		p.mu.Lock()
		ticket, err = t.add(op, res, ts, now, w)
		p.mu.Unlock()
	}
	w.end()
	err = w.explain(err)
	switch {
	case err != nil || !c.durability.waits(op):
		return err
	case ticket == noTicket:
		return errRefusedKey
	}
	mark, err := p.commit(w.ctx, ticket, t.counted())
	if err != nil {
		return err
	}
	return cmp.Or(c.durability.await(w.ctx, c.durability.of(op), []store.Mark{mark})...)
}

// durability determines the ack level of an operation, and waits for it.
type durability struct {
	store     store.Store
	ack       twotier.Ack // the level of AckDefault
	placement twotier.Placement
}

// check returns an error if an operation can't reach its ack level. It is called before anything is
// counted.
func (d *durability) check(ctx context.Context, op *twotier.Op) error {
	ack := d.of(op)
	if ack < twotier.AckReplica || op.Reads() {
		return nil
	}
	keeper, ok := d.store.(store.Keeper)
	if !ok {
		return &twotier.InvalidError{Check: -1, Limit: -1, Field: "ack",
			Detail: "counts are kept in the memory of this server alone, want memory or redis"}
	}
	partitions := make([]int, len(op.Checks))
	for i := range op.Checks {
		partitions[i] = d.placement.Of(op.Checks[i].NS, op.Checks[i].Key)
	}
	return keeper.Keeps(ctx, ack, partitions...)
}

// of returns the ack level of an operation.
func (d *durability) of(op *twotier.Op) twotier.Ack {
	if op.Ack == twotier.AckDefault {
		return d.ack
	}
	return op.Ack
}

// waits reports whether an operation waits for the store.
func (d *durability) waits(op *twotier.Op) bool {
	return d.of(op) >= twotier.AckStore && !op.Reserves()
}

// call is the scratch memory of one operation: its checks, and the partitions of their keys, which
// are locked together.
type call struct {
	op          *twotier.Op
	now, ts     int64
	present     int64 // now, or the end of the operation's last wait
	targets     []target
	parts       []*partition
	reservation *reservation // if set, the operation is reserved instead of counted
	refused     bool         // the store refuses one of the keys that were counted
	touched     uint64
	admission   admission
	borrowed    bool // some of the targets are counted for another counter
}

// begin prepares the scratch memory for an operation.
func (k *call) begin(op *twotier.Op, now int64) {
	k.op, k.now, k.present = op, now, now
	k.targets, k.parts, k.refused, k.reservation = k.targets[:0], k.parts[:0], false, nil
}

// hasWaited records that the operation has waited.
func (k *call) hasWaited() { k.present = k.targets[0].p.keys.Clock.Now() }

// prepare locates and validates everything before anything is locked.
func (k *call) prepare(d *directory, op *twotier.Op, now int64) error {
	k.begin(op, now)
	ts, err := twotier.Validate(op, d.namespaces.Ladder, now)
	if err != nil {
		return err
	}
	k.ts = ts
	k.locate(d)
	return nil
}

// locate finds the partitions of all checks, and adds up the counts of the other checks of the same
// key.
func (k *call) locate(d *directory) {
	for i := range k.op.Checks {
		check := &k.op.Checks[i]
		k.targets = append(k.targets, target{})
		t := &k.targets[i]
		d.locate(t, check)
		for j := range i {
			if o := &k.targets[j]; t.same(o) {
				t.extra, o.extra = t.extra+o.check.N, o.extra+check.N
			}
		}
		k.parts = append(k.parts, t.p)
	}
	k.order()
}

// same reports whether two targets have the same key.
func (t *target) same(o *target) bool {
	return o.p == t.p && o.hash == t.hash && string(o.ns) == string(t.ns) &&
		string(o.check.Key) == string(t.check.Key)
}

// order sorts the partitions into locking order and removes duplicates.
func (k *call) order() {
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
		k.giveBack()
	}
	for _, p := range k.parts {
		p.mu.Unlock()
	}
}

// decide evaluates an operation once its keys are loaded and there is room for its counts.
func (k *call) decide(w *admission, res *twotier.Result) (counted bool, err error) {
	k.admission = *w
	for again := true; again; again = errors.Is(err, twotier.ErrBehind) && k.admission.wait() {
		if err != nil {
			k.hasWaited()
		}
		res.Reset()
		if err = k.lockWarm(w.ctx, w.opt.LoadTimeout); err != nil {
			break
		}
		counted, err = k.evaluate(res)
		k.unlock()
	}
	err = k.admission.explain(err)
	k.admission.end()
	*w, k.admission = k.admission, admission{}
	return counted, err
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
	askedAhead *rounds.PendingLoad // requested by askAhead, not looked at yet
	absent     bool                // the store holds nothing of the key
	loaded     bool                // the store was asked for this operation
	storeDown  bool                // the store is known to be unreachable
	keyRefused bool                // the store was asked for this operation, and refuses the key
	// absence is the store's report that it has nothing of a key.
	absence rounds.Absence
	extra   int64 // the sum that the other checks of the operation count of the key
	// credit is set if the key is another counter's, and this one may count it.
	credit   *loans.Credit
	borrowed bool // the same for reading
	// stamped is the time at which events of the credit were counted.
	stamped int64
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
	case t.refused(op) && !t.borrow(op):
		return 0, twotier.ErrNotOwner
	case p.draining:
		return 0, twotier.ErrClosed
	case !w.admits(t):
		return 0, twotier.ErrBehind
	}
	r, e, err := t.entry(now)
	if err != nil {
		return 0, err
	}
	if t.credit != nil {
		ts = t.credit.Use(t.check.N, ts, time.Now())
	}
	p.keys.Count(e, t.sp.Ladder, ts, t.check.N, now)
	if ts > now {
		p.keys.MarkAhead(e, t.sp.Ladder, ts, now)
	}
	p.enlist(r, e)
	res.Allowed, res.Source = true, twotier.SourceMemory
	switch {
	case p.degraded():
		res.Degraded, res.Source = true, twotier.SourceDegraded
	case p.ownership == notOwned:
		res.Source = t.source()
	}
	res.AddCheck().TS = ts
	if e.Has(keys.FlagParked) {
		return noTicket, nil
	}
	return p.dirty.LastTicket, nil
}

// entry finds or makes the key's entry, and marks it as used now. The partition is locked.
func (t *target) entry(now int64) (arena.Ref, keys.Entry, error) {
	p := t.p
	if p.closed {
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
		e := p.keys.Entry(r)
		e.SetUsed(sec)
		e.Set(keys.FlagCold)
		if t.absent || t.unlisted() {
			p.setWarm(e)
		}
		return r, e, nil
	}
	e := p.keys.Entry(r)
	e.SetUsed(sec)
	if p.memory.pool.Exhausted() && !p.makeRoom(t.sp.Ladder.MaxWords(), sec) {
		return 0, nil, fmt.Errorf("%w: no memory for more buckets", twotier.ErrOverload)
	}
	return r, e, nil
}

// unconditional reports whether an operation can be carried out without knowing its key's past: it
// counts and compares with nothing. Taking counts back needs the past, because it never takes back
// more than there is.
func unconditional(op *twotier.Op) bool {
	return op.Kind == twotier.Add && len(op.Checks) == 1 && len(op.Checks[0].Limits) == 0 &&
		op.Checks[0].N >= 0
}
