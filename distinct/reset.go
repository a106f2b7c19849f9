package distinct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"twotier.dev/twotier/syncer"
)

// Forget resets a key, in memory and in the store. What other nodes have in memory of it is void:
// the store tells them of the reset before it takes anything of theirs. If the store does not
// answer, the error wraps syncer.ErrUnknownOutcome. mark is what [Engine.Void] tells other nodes
// of the reset at once; "" without a store.
func (e *Engine) Forget(ctx context.Context, ns, key []byte) (mark string, err error) {
	op := &Op{NS: ns, Key: key}
	if e.opt.Store == nil {
		sh, id := e.lock(op)
		defer sh.mu.Unlock()
		if en := sh.keys[string(id)]; en != nil {
			e.forget(sh, en)
		}
		return "", nil
	}
	e.makeRoom()
	sh, en, err := e.seize(ctx, op)
	if err != nil {
		return "", err
	}
	defer e.release([]*entry{en})
	x := &Exchange{Partition: en.partition, NS: en.ns, Key: en.key, Version: rand.Text()[:13],
		Mark: newMark(e.opt.Now()), Reset: true, TTL: syncer.KeyTTL(en.ladder.Ladder)}
	within, cancel := context.WithTimeout(ctx, e.opt.Timeout)
	defer cancel()
	e.opt.Store.Compare(within, []*Exchange{x})
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if x.Err != nil {
		en.unsure = true
		if errors.Is(x.Err, syncer.ErrNotApplied) {
			return "", fmt.Errorf("%w: reset: %v", syncer.ErrUnavailable, x.Err)
		}
		return "", fmt.Errorf("%w: reset: %v", syncer.ErrUnknownOutcome, x.Err)
	}
	en.clear()
	// The next one reads it anew. No reset of before is about what is added until then.
	en.mark, en.version, en.loaded = max(en.mark, x.FoundMark), "", false
	en.born = e.opt.Now()
	sh.note(en)
	e.weigh(en)
	return x.FoundMark, nil
}

// Void takes in that another node has reset a key, so that nothing is answered from what the reset
// has made void, whether the store can be reached by then or not. What is added from now on is
// younger: the mark is kept even if there is nothing else of the key, for as long as an idle key
// stays. It can be told late, repeatedly, and in any order.
func (e *Engine) Void(ns, key []byte, mark string) {
	if e.opt.Store == nil {
		return
	}
	e.makeRoom()
	op := &Op{NS: ns, Key: key}
	sh, id := e.lock(op)
	defer sh.mu.Unlock()
	en, err := e.entry(sh, id, op, true)
	if err != nil {
		return // without room it is read anew the next time
	}
	en.learnMark(mark, e.opt.Now())
	sh.note(en)
	e.weigh(en)
}
