package distinct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// Reset is the report of a reset to other nodes.
type Reset struct {
	// Mark is the mark of the reset, "" if there is nothing to report.
	Mark string
	// Doubt marks a reset of unknown outcome: the store has made it, or may still make it while the
	// key has the version Expect.
	Doubt  bool
	Expect string
}

// Forget resets a key, in memory and in the store. Other nodes' values of it become void: the store
// reports the reset to a node before it accepts any write of that node. r is to be passed to
// [Engine.Void] on all other nodes at once. If the store does not answer, the error wraps
// twotier.ErrUnknownOutcome, and r has to reach the other nodes as well.
func (e *Engine) Forget(ctx context.Context, ns, key []byte) (r Reset, err error) {
	op := &Op{NS: ns, Key: key}
	if e.opt.Store == nil {
		sh, id := e.lock(op)
		defer sh.mu.Unlock()
		if en := sh.keys[string(id)]; en != nil {
			e.forget(sh, en)
		}
		return Reset{}, nil
	}
	e.makeRoom()
	sh, en, err := e.claimEntry(ctx, op)
	if err != nil {
		return Reset{}, err
	}
	defer e.release([]*entry{en})
	for ctx.Err() == nil {
		sh.mu.Lock()
		x := en.newComparison()
		x.Version, x.Mark, x.Reset = rand.Text()[:13], en.nextMark(e.opt.Now()), true
		sh.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, e.opt.Timeout)
		e.opt.Store.Compare(within, []*Exchange{x})
		cancel()
		if r, done, err := e.concludeReset(sh, en, x); done {
			return r, err
		}
	}
	return Reset{}, errLate
}

// concludeReset processes the outcome of a reset. The reset is not done if the key had another
// version; the entry has then merged that version.
func (e *Engine) concludeReset(sh *shard, en *entry, x *Exchange) (r Reset, done bool, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	defer func() {
		sh.updateDirty(en)
		e.updateMemory(en)
	}()
	switch {
	case errors.Is(x.Err, syncer.ErrNotApplied), errors.Is(x.Err, syncer.ErrRefused):
		return Reset{}, true, fmt.Errorf("%w: reset: %v", twotier.ErrUnavailable, x.Err)
	case x.Err != nil:
		r = Reset{Mark: x.Mark, Doubt: true, Expect: x.Expect}
		en.addDoubt(r)
		return r, true, fmt.Errorf("%w: reset: %v", twotier.ErrUnknownOutcome, x.Err)
	case !x.Matched():
		en.applyExchange(x, 0, e.opt.Now())
		return Reset{}, false, nil
	}
	en.clear()
	// The next operation reads the key anew. No earlier reset voids values added until then.
	en.mark, en.version, en.loaded = max(en.mark, x.Mark), "", false
	en.born = e.opt.Now()
	en.resolveDoubts(x)
	return Reset{Mark: x.Mark}, true, nil
}

// Void records another node's reset of a key, so that no answer relies on values voided by the
// reset, whether or not the store can be reached. Values added from now on are younger: the mark is
// kept even if nothing else of the key is, for as long as an idle key stays. Calls may come late,
// repeatedly, and in any order. A reset in doubt voids nothing until the store confirms it, and the
// store is asked before any value is added.
func (e *Engine) Void(ns, key []byte, r Reset) {
	if e.opt.Store == nil {
		return
	}
	e.makeRoom()
	op := &Op{NS: ns, Key: key}
	sh, id := e.lock(op)
	defer sh.mu.Unlock()
	en, err := e.entry(sh, id, op, true)
	if err != nil {
		return // without room, the key is read anew the next time
	}
	if r.Doubt {
		en.addDoubt(r)
	} else {
		en.learnMark(r.Mark, e.opt.Now())
	}
	sh.updateDirty(en)
	e.updateMemory(en)
}
