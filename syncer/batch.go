package syncer

import (
	"context"
	"errors"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// atOnce is how many adds of a batch are carried out, and how many keys of other operations are
// checked, under one hold of their partitions' locks. It is large enough for their reads of memory
// to overlap, and small enough not to block the partitions for long. Of 4, 8, 12, 16, 32 and 64,
// BenchmarkAddsAmong was the fastest with 8.
const atOnce = 8

// countLeadingAdds returns how many operations at the front are adds without limits.
func countLeadingAdds(ops []twotier.Op) int {
	for i := range ops {
		if !isUnconditional(&ops[i]) {
			return i
		}
	}
	return len(ops)
}

// batch is a list of operations that are carried out together, in order. Operations that find no
// room, and operations that share a key with one of these, are exceptions: they are put off until
// all others are done, and only then wait for room.
type batch struct {
	o   *operations
	ops []twotier.Op
	res []twotier.Result
	// ahead holds the requested loads that no call has taken over, by check; nil if there are none.
	ahead     []*rounds.PendingLoad
	admission admission
	putOff    []putOff
	overtaken map[string]bool // names of the keys of operations that were put off
	moved     map[string]bool // and of those that another counter must execute
	stored    []int           // positions of counted operations that wait for the store
	tickets   map[*partition]uint64
}

// putOff is an operation of a batch that has to wait for room.
type putOff struct {
	at   int
	call *call // nil for an add without limits
}

// DoAll runs operations in order and sets Err in each result. Operations that need the past of keys
// not in memory wait for all those loads together, and operations that need the store's
// acknowledgement wait for it together.
func (c *Counter) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	if c.opt.Pulse == nil {
		c.doAll(ctx, ops, res)
		return
	}
	stops := c.opt.Pulse.Stops()
	c.doAll(ctx, ops, res)
	if c.opt.Pulse.HasRunSince(stops) {
		return
	}
	for i := range ops {
		if res[i].Err == nil && isAdmission(&ops[i], &res[i]) {
			res[i].Err = c.withdraw(&ops[i])
		}
	}
}

// doAll is DoAll, and does not check whether the process stood still before its answers.
func (c *Counter) doAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	kept, at := c.opt.excludeUnreachable(ctx, ops, res)
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

// runBatch is DoAll for operations whose acks can be waited for.
func (o *operations) runBatch(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	b := batch{o: o, ops: ops, res: res, admission: admission{ctx: ctx, opt: &o.opt, never: true}}
	b.ahead = b.requestLoads()
	for i, checks := 0, 0; i < len(ops); {
		n := 1
		if adds := countLeadingAdds(ops[i:]); adds > 0 && len(b.overtaken)+len(b.moved) == 0 {
			n = adds
			b.runAdds(i, i+n)
		} else {
			b.runOp(i, checks)
		}
		checks += countChecks(ops[i : i+n])
		i += n
	}
	b.stopWaiting()
	b.admission.never = false
	for _, later := range b.putOff {
		switch {
		case later.call == nil:
			b.runAdds(later.at, later.at+1)
		case b.failIfExpired(later.at, later.at+1):
			later.call.lock()
			later.call.stopWaiting()
			later.call.unlock()
			o.calls.Put(later.call)
		default:
			later.call.updatePresent()
			b.decide(later.at, later.call)
		}
	}
	b.awaitAcks(ctx)
}

// failIfExpired fails the operations in [from, to), none of which has begun, if the request has
// ended or its time is up. It is called between operations, and between every few adds.
func (b *batch) failIfExpired(from, to int) bool {
	if b.admission.ctx.Err() == nil {
		return false
	}
	for i := from; i < to; i++ {
		b.res[i].Reset()
		b.res[i].Err = errExpired
	}
	return true
}

// runOp carries out the operation at a position. checks is the number of checks of all preceding
// operations of the batch.
func (b *batch) runOp(at, checks int) {
	op := &b.ops[at]
	if b.failIfExpired(at, at+1) {
		return
	}
	if sharesKey(op, b.moved) {
		b.res[at].Reset()
		b.res[at].Err = twotier.ErrNotOwner
		return
	}
	overtaken := sharesKey(op, b.overtaken)
	if isUnconditional(op) {
		if overtaken {
			b.deferOp(at, nil)
		} else {
			b.runAdds(at, at+1)
		}
		return
	}
	k, err := b.prepareCall(op, checks)
	switch {
	case err != nil:
		b.res[at].Reset()
		b.res[at].Err = err
	case overtaken:
		b.deferOp(at, k)
	default:
		b.decide(at, k)
	}
}

// prepareCall returns a call, ready to be decided, for an operation. checks is as in runOp.
func (b *batch) prepareCall(op *twotier.Op, checks int) (*call, error) {
	if err := b.o.checkOpen(op); err != nil {
		return nil, err
	}
	k := b.o.calls.Get().(*call)
	if err := k.prepare(&b.o.directory, op, b.o.opt.Now()); err != nil {
		b.o.calls.Put(k)
		return nil, err
	}
	if b.ahead != nil {
		for i := range k.targets {
			k.targets[i].load, b.ahead[checks+i] = b.ahead[checks+i], nil
		}
	}
	return k, nil
}

// decide decides the operation at a position, or puts it off if there is no room.
func (b *batch) decide(at int, k *call) {
	op, res := &b.ops[at], &b.res[at]
	counted, err := k.decide(&b.admission, res)
	if b.admission.never && errors.Is(err, twotier.ErrBehind) {
		b.deferOp(at, k)
		return
	}
	b.recordMoved(op, err)
	if res.Err = err; counted && b.o.opt.waitsForStore(op) {
		if k.refused {
			res.Err = errRefusedKey
		} else {
			for _, p := range k.parts {
				b.recordTicket(p, p.lastTicket())
			}
			b.stored = append(b.stored, at)
		}
	}
	b.o.calls.Put(k)
}

// deferOp puts an operation off.
func (b *batch) deferOp(at int, k *call) {
	if b.overtaken == nil {
		b.overtaken = map[string]bool{}
	}
	b.putOff = append(b.putOff, putOff{at, k})
	addNames(b.overtaken, &b.ops[at])
}

// recordMoved records the names of an operation's keys if it failed with ErrNotOwner. The operation
// is executed elsewhere, so no later operation that shares a key with it may be executed here
// first.
func (b *batch) recordMoved(op *twotier.Op, err error) {
	if !errors.Is(err, twotier.ErrNotOwner) {
		return
	}
	if b.moved == nil {
		b.moved = map[string]bool{}
	}
	addNames(b.moved, op)
}

// addNames adds the names of an operation's keys.
func addNames(names map[string]bool, op *twotier.Op) {
	for i := range op.Checks {
		names[string(op.Checks[i].AppendName(nil))] = true
	}
}

// sharesKey reports whether one of an operation's keys is in names.
func sharesKey(op *twotier.Op, names map[string]bool) bool {
	if len(names) == 0 {
		return false
	}
	var name [384]byte
	for i := range op.Checks {
		if names[string(op.Checks[i].AppendName(name[:0]))] {
			return true
		}
	}
	return false
}

func (b *batch) recordTicket(p *partition, ticket uint64) {
	if b.tickets == nil {
		b.tickets = map[*partition]uint64{}
	}
	b.tickets[p] = ticket
}

// runAdds carries out the adds without limits in [from, to), in order. Adds that find no room are
// carried out after the others as room becomes free, or are put off.
func (b *batch) runAdds(from, to int) {
	b.tryAdds(from, to)
	for i := from; i < to; i++ {
		// Try before waiting: the admission only remembers where the last add found no room.
		again := b.foundNoRoom(i)
		for ; again; again = b.foundNoRoom(i) && b.admission.waitForRoom() {
			b.tryAdds(i, i+1)
		}
		b.admission.releaseRoom()
		b.res[i].Err = b.admission.explainRefusal(b.res[i].Err)
		if b.admission.never && b.foundNoRoom(i) {
			b.deferOp(i, nil)
		}
	}
}

func (b *batch) foundNoRoom(at int) bool { return errors.Is(b.res[at].Err, twotier.ErrBehind) }

// tryAdds is runAdds, but doesn't wait for room.
func (b *batch) tryAdds(from, to int) {
	k := b.o.calls.Get().(*call)
	defer b.o.calls.Put(k)
	for ; from < to; from += atOnce {
		if b.failIfExpired(from, to) {
			return
		}
		end := min(to, from+atOnce)
		k.begin(nil, b.o.opt.Now())
		for i := from; i < end; i++ {
			k.targets = append(k.targets, target{})
			t := &k.targets[i-from]
			b.o.locate(t, &b.ops[i].Checks[0])
			k.parts = append(k.parts, t.p)
		}
		k.sortPartitions()
		k.lock()
		k.prefetch(false)
		for i := from; i < end; i++ {
			b.addLocked(k, i, &k.targets[i-from])
		}
		k.unlock()
	}
}

// addLocked carries out one add. Its partition is locked.
func (b *batch) addLocked(k *call, at int, t *target) {
	op, res := &b.ops[at], &b.res[at]
	res.Reset()
	ticket := uint64(0)
	ts, err := op.Moment(t.sp.Ladder, k.Now)
	if err == nil {
		ticket, err = t.add(op, res, ts, k.Now, &b.admission)
	}
	b.recordMoved(op, err)
	switch res.Err = err; {
	case err != nil || !b.o.opt.waitsForStore(op):
	case ticket == noTicket:
		res.Err = errRefusedKey
	default:
		b.recordTicket(t.p, ticket)
		b.stored = append(b.stored, at)
	}
}

// prefetch reads the first entries with the hashes of the targets, and the synced counters if they
// will be needed, so that the cache misses overlap.
func (k *call) prefetch(synced bool) {
	k.places = k.places[:0]
	for i := range k.targets {
		t := &k.targets[i]
		k.places = append(k.places, keys.Place{Keyspace: &t.p.keys, Hash: t.hash})
	}
	k.touched = keys.PrefetchPlaces(k.places, synced)
}
