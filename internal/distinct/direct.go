package distinct

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/sketch"
)

// DoInStore runs an operation in the store, as every node may: it writes the values, or answers,
// only if the key is still as it was when the decision was made. Otherwise it decides anew. The
// copy in memory saves reading the key each time.
func (e *Engine) DoInStore(ctx context.Context, op *Op, res *Result) error {
	if _, err := op.validate(e.namespace(op.NS).scale, e.opt.Now()); err != nil {
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
	op      *Op
	x       *Exchange
	ts, now int64
	// load marks a plan without a decision: the key has to be read first, or this node's unflushed
	// changes, up to seq, have to reach the store first.
	load bool
	seq  uint64
}

// planDecision makes a decision from memory.
func (e *Engine) planDecision(sh *shard, en *entry, op *Op, res *Result) *plan {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d := &plan{op: op, now: e.opt.Now(), load: !en.loaded}
	if d.ts = op.TS; d.ts == 0 {
		d.ts = d.now
	}
	en.used = time.Now()
	if d.seq = en.flushed; en.dirty() && len(op.Hashes) > 0 {
		d.load = true
		d.x, d.seq = en.newExchange(d.now, rand.Text()[:13])
		return d
	}
	en.prune(d.now)
	d.x = en.newComparison()
	if d.load || !allows(&sh.union, en, op, res, d.now) {
		return d
	}
	for level := range en.ladder.Len() {
		index := en.ladder.index(level, d.ts)
		if index < en.ladder.oldest(level, d.now) {
			continue
		}
		var grown sketch.Set
		if i, found := en.find(level, index); found {
			grown = en.levels[level][i].set.Clone()
		}
		some := false
		for _, h := range op.Hashes {
			some = grown.Add(h) || some
		}
		if some {
			b := en.ladder.bucket(level, index)
			b.Data = grown.Append(nil)
			d.x.Sets = append(d.x.Sets, b)
		}
	}
	if len(d.x.Sets) > 0 || len(op.Hashes) > 0 && en.needsFence() {
		d.x.Version = rand.Text()[:13]
		d.x.Deletes, en.gone = en.gone, nil
	}
	return d
}

// conclude processes the outcome of an exchange, and answers if the decision was right.
func (e *Engine) conclude(sh *shard, en *entry, d *plan, res *Result) (done bool, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	x := d.x
	// A reset during the exchange may have voided the write.
	late := x.Matched() && en.mark > x.Mark
	if x.Matched() && x.Version != "" && !d.load && !late {
		clean := !en.dirty()
		if en.add(d.op.Hashes, d.ts, d.now); clean {
			d.seq = en.seq
		}
	}
	en.applyExchange(x, d.seq, d.now)
	sh.updateDirty(en)
	e.updateMemory(en)
	switch {
	case x.Err != nil && x.Version != "" && !d.load:
		return true, fmt.Errorf("%w: %v", twotier.ErrUnknownOutcome, x.Err)
	case x.Err != nil:
		return true, fmt.Errorf("%w: %v", twotier.ErrUnavailable, x.Err)
	case !x.Matched() || d.load || late:
		return false, nil
	}
	res.Degraded = false
	res.fillCounts(&sh.union, en, d.op, d.ts, d.now)
	e.recordAnswer(sh, en)
	res.Source = twotier.SourceRedis
	return true, nil
}
