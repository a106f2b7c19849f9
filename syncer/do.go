package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// target is one check of an operation and where its key lives.
type target struct {
	check      *Check
	ns         []byte // empty for the default namespace
	p          *partition
	sp         *space
	spIdx      int
	hash       uint32
	ref        arena.Ref
	load       *pendingLoad
	askedAhead *pendingLoad // what the key was asked for before, not looked at yet
	absent     bool         // the store holds nothing of it
	loaded     bool         // the store was asked for this operation
	storeDown  bool         // the store can't be asked
	// absence is what it said of a key that it has nothing of.
	absence absence
	extra   int64
}

// call is the scratch memory of one operation.
type call struct {
	op            *Op
	now, ts       int64
	targets       []target
	parts         []*partition
	reservation   *reservation // what is to be held instead of counted, or nil
	reservationID string
	refused       bool // the store refuses one of the keys that were counted
	touched       uint64
	admission     admission
}

// Do carries out one operation. It fills in res, whose memory it reuses; on an error res means
// nothing and, but for ErrUnknownOutcome, nothing was counted. Other errors are ErrClosed,
// ErrOverload, ErrUnavailable and *InvalidError.
func (c *Counter) Do(ctx context.Context, op *Op, res *Result) error {
	if err := c.durability.check(ctx, op); err != nil {
		return err
	}
	w := admission{ctx: ctx, c: c}
	refused, err := c.do(&w, op, res)
	if err == nil && refused && c.durability.waits(op) {
		return errRefusedKey
	}
	return err
}

// do is Do, but for what it says of keys that the store refuses: whether one of those that were
// counted is one.
func (c *Counter) do(w *admission, op *Op, res *Result) (refused bool, err error) {
	res.Reset()
	if err := c.closedTo(op); err != nil {
		return false, err
	}
	now := c.opt.Now()
	if op.unconditional() {
		return c.addOnly(w, op, res, now)
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	if err := c.prepare(k, op, now); err != nil {
		return false, err
	}
	counted, err := c.decide(w, k, res)
	if err != nil || !counted || k.refused || !c.durability.waits(op) {
		return k.refused, err
	}
	return false, c.commitAll(w.ctx, k)
}

// closedTo returns ErrClosed if the counter takes no operations of that kind any more.
func (c *Counter) closedTo(op *Op) error {
	if c.closed.Load() || op.Kind != Count && c.draining.Load() {
		return ErrClosed
	}
	return nil
}

// decide evaluates an operation once its keys are known and what it counts has room.
func (c *Counter) decide(w *admission, k *call, res *Result) (counted bool, err error) {
	k.admission = *w
	for again := true; again; again = errors.Is(err, ErrBehind) && k.admission.wait() {
		res.Reset()
		if err = c.lockWarm(w.ctx, k); err != nil {
			break
		}
		if err = ErrNotOwner; !k.op.RequireStore || !k.degraded() {
			counted, err = c.evaluate(k, res)
		}
		k.unlock()
	}
	err = k.admission.explain(err)
	k.admission.end()
	*w, k.admission = k.admission, admission{}
	return counted, err
}

// DoAll carries out operations in order and sets Err in each result. Those that need to know the
// past of a cold key wait for all of them together, and so do those that wait for the store. What
// has to wait for room is overtaken by what comes behind it and concerns other keys.
func (c *Counter) DoAll(ctx context.Context, ops []Op, res []Result) {
	kept, at := c.thoseKept(ctx, ops, res)
	if at == nil {
		c.runBatch(ctx, ops, res)
		return
	}
	out := make([]Result, len(kept))
	c.runBatch(ctx, kept, out)
	for k, i := range at {
		res[i] = out[k]
	}
}

// addOnly is an Add that compares with nothing: it needs to know nothing of the key's past.
func (c *Counter) addOnly(w *admission, op *Op, res *Result, now int64) (refused bool, err error) {
	check := &op.Checks[0]
	var t target
	c.locate(&t, check)
	ts, err := moment(op, t.sp.ladder, now)
	if err != nil {
		return false, err
	}
	p, ticket := t.p, uint64(0)
	for again := true; again; again = errors.Is(err, ErrBehind) && w.wait() {
		p.mu.Lock()
		ticket, err = c.addHere(&t, op, res, ts, now, w)
		p.mu.Unlock()
	}
	w.end()
	err = w.explain(err)
	if err != nil || ticket == noTicket || !c.durability.waits(op) {
		return ticket == noTicket, err
	}
	mark, err := c.commit(w.ctx, p, ticket)
	if err == nil {
		err = c.parkedError(op)
	}
	if err != nil {
		return false, err
	}
	return false, cmp.Or(c.durability.await(w.ctx, c.durability.of(op), []Mark{mark})...)
}

// noTicket is that of a count which the store is known to refuse.
const noTicket = math.MaxUint64

// addHere counts an Add that compares with nothing. The partition is locked. The ticket is what has
// to be covered for it to be in the store.
func (c *Counter) addHere(t *target, op *Op, res *Result, ts, now int64,
	w *admission) (ticket uint64, err error) {
	p := t.p
	switch {
	case p.refuses(op.AllowNonOwner) || op.RequireStore && p.degraded():
		return 0, ErrNotOwner
	case p.draining:
		return 0, ErrClosed
	case !w.admits(t):
		return 0, ErrBehind
	}
	r, e, err := c.entry(t, now)
	if err != nil {
		return 0, err
	}
	s := t.sp.ladder.Stamp(ts)
	p.keys.count(e, t.sp.ladder, &s, t.check.N, isLate(t.sp.ladder, ts, now))
	p.enlist(r, e)
	res.Allowed, res.Source = true, p.source(e)
	if p.degraded() {
		res.Degraded, res.Source = true, SourceDegraded
	}
	res.AddCheck()
	if e.has(flagParked) {
		return noTicket, nil
	}
	return p.dirty.lastTicket, nil
}

// locate finds the partition and namespace of a check.
func (c *Counter) locate(t *target, check *Check) {
	t.check = check
	if !isDefault(check.NS) {
		t.ns = check.NS
		t.spIdx = c.namespaces.index(check.NS)
	}
	t.sp = c.namespaces.all[t.spIdx]
	t.p = c.partitionOf(check)
	t.hash = c.namespaces.hash(t.ns, check.Key)
}

// partitionOf is where the key of a check lives.
func (c *Counter) partitionOf(check *Check) *partition {
	return &c.parts[c.opt.Placement.Of(check.NS, check.Key)]
}

// entry finds or makes the entry of a target. The partition is locked.
func (c *Counter) entry(t *target, now int64) (arena.Ref, entry, error) {
	p := t.p
	if p.closed {
		return 0, nil, ErrClosed
	}
	sec := c.clock.seconds(now)
	r := p.keys.find(t.hash, t.ns, t.check.Key)
	if r == 0 {
		if err := p.memory.admitKey(&p.guarded, t.spIdx, entryWords(t.ns, t.check.Key, t.sp.ladder.Len()),
			sec); err != nil {
			return 0, nil, err
		}
		r = p.keys.insert(t.hash, t.ns, t.check.Key, t.spIdx, t.sp.ladder.Len())
		e := p.keys.entry(r)
		e.setUsed(sec)
		e.set(flagCold)
		if t.absent {
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

// isLate reports whether a moment lies so far back that a level may not keep it any more.
func isLate(l *leaparray.Ladder, ts, now int64) bool { return ts < now-l.FineSpan()/2 }

// begin makes the scratch memory ready for an operation.
func (k *call) begin(op *Op, now int64) {
	k.op, k.now = op, now
	k.targets, k.parts, k.refused = k.targets[:0], k.parts[:0], false
}

// prepare locates and validates everything before anything is locked.
func (c *Counter) prepare(k *call, op *Op, now int64) error {
	k.begin(op, now)
	ts, err := Validate(op, c.namespaces.ladder, now)
	if err != nil {
		return err
	}
	k.ts = ts
	c.locateAll(k)
	return nil
}

// locateAll finds the partitions of all checks, and what earlier checks count of the same key.
func (c *Counter) locateAll(k *call) {
	for i := range k.op.Checks {
		check := &k.op.Checks[i]
		k.targets = append(k.targets, target{})
		t := &k.targets[i]
		c.locate(t, check)
		for j := range i {
			if o := &k.targets[j]; t.same(o) {
				t.extra += o.check.N
			}
		}
		k.parts = append(k.parts, t.p)
	}
	k.order()
}

// same reports whether two targets are the same key.
func (t *target) same(o *target) bool {
	return o.p == t.p && o.hash == t.hash && string(o.ns) == string(t.ns) &&
		string(o.check.Key) == string(t.check.Key)
}

// order puts the partitions into the order in which they are locked.
func (k *call) order() {
	if len(k.parts) > 1 {
		slices.SortFunc(k.parts, func(a, b *partition) int { return a.id - b.id })
		k.parts = slices.Compact(k.parts)
	}
}

// lock locks the partitions in order of their number, so that no two operations wait for each
// other.
func (k *call) lock() {
	for _, p := range k.parts {
		p.mu.Lock()
	}
}

func (k *call) unlock() {
	for _, p := range k.parts {
		p.mu.Unlock()
	}
}

// parkedError tells the one who waited for the store that it refuses the key.
func (c *Counter) parkedError(op *Op) error {
	for i := range op.Checks {
		var t target
		c.locate(&t, &op.Checks[i])
		t.p.mu.Lock()
		r := t.p.keys.find(t.hash, t.ns, t.check.Key)
		parked := r != 0 && t.p.keys.entry(r).has(flagParked)
		t.p.mu.Unlock()
		if parked {
			return errRefusedKey
		}
	}
	return nil
}
