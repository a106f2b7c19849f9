package distinct

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// DoInStore runs an operation in the store, as every node may: it writes the values, or answers,
// only if the key is still as it was when the decision was made. Otherwise it decides anew. The
// copy in memory saves reading the key each time.
func (e *Engine) DoInStore(ctx context.Context, op *Op, res *Result) error {
	if err := op.validate(e.namespace(op.NS).Ladder, e.opt.Now()); err != nil {
		return err
	}
	e.makeRoom()
	sh, en, err := e.claimEntry(ctx, op)
	if err != nil {
		return err
	}
	defer e.release([]*entry{en})
	for ctx.Err() == nil {
		d := e.planDecision(sh, en, op, res)
		within, cancel := context.WithTimeout(ctx, e.opt.Timeout)
		e.opt.Store.Compare(within, []*Exchange{d.x})
		cancel()
		if done, err := e.conclude(sh, en, d, res); done || err != nil {
			return err
		}
	}
	return errLate
}

// claimEntry returns the entry of a key, marked as busy.
func (e *Engine) claimEntry(ctx context.Context, op *Op) (*shard, *entry, error) {
	for {
		sh, id := e.lock(op)
		en, err := e.entry(sh, id, op, true)
		if err != nil {
			sh.mu.Unlock()
			return nil, nil, err
		}
		busy := en.busy
		if busy == nil {
			en.busy = make(chan struct{})
		}
		sh.mu.Unlock()
		if busy == nil {
			return sh, en, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, nil, errLate
		}
	}
}

// plan is a decision that is right if the store matches memory.
type plan struct {
	op  *Op
	x   *Exchange
	now int64
	// next has the values after the operation, if it writes.
	next leaparray.Values
	// load marks a plan without a decision: the key has to be read first, or this node's unflushed
	// changes have to reach the store first.
	load bool
	seq  uint64 // the entry's at the time of the plan
}

// planDecision makes a decision from memory.
func (e *Engine) planDecision(sh *shard, en *entry, op *Op, res *Result) *plan {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d := &plan{op: op, now: e.opt.Now(), load: !en.loaded}
	en.used = time.Now()
	if en.dirty() && len(op.Hashes) > 0 {
		d.load = true
		d.x, d.seq = en.newExchange(d.now, rand.Text()[:13])
		return d
	}
	en.prune(d.now)
	d.x, d.seq = en.newComparison(), en.seq
	if d.load || !allows(en, op, res, d.now) || len(op.Hashes) == 0 {
		return d
	}
	next := entry{values: en.values.Clone(), space: en.space}
	if next.add(op.Hashes, op.TS, d.now) {
		d.next = next.values
		d.x.write(rand.Text()[:13], &d.next)
		d.next.SetChanged(0)
	}
	return d
}

// conclude processes the outcome of an exchange, and answers if the decision was right.
func (e *Engine) conclude(sh *shard, en *entry, d *plan, res *Result) (done bool, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	x := d.x
	wrote := x.Version != "" && !d.load
	// A reset that was learned of during the exchange voids the decision.
	changed := en.seq != d.seq
	if wrote && x.Matched() {
		if changed {
			en.values.Merge(&d.next, en.space.most)
		} else {
			en.values = d.next
		}
	}
	en.applyExchange(x, d.seq, d.now)
	sh.updateDirty(en)
	e.updateMemory(en)
	switch {
	case x.Err != nil && wrote:
		return true, fmt.Errorf("%w: %v", twotier.ErrUnknownOutcome, x.Err)
	case x.Err != nil:
		return true, fmt.Errorf("%w: %v", twotier.ErrUnavailable, x.Err)
	case !x.Matched() || d.load || changed:
		return false, nil
	}
	res.Degraded = false
	if !res.Allowed {
		res.countLimits(en, d.op, d.now)
	}
	res.countWindows(en, d.op, d.now)
	res.Source = twotier.SourceRedis
	return true, nil
}
