package distinct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"twotier.dev/twotier/syncer"
)

// Reset is what other nodes are told of a reset.
type Reset struct {
	// Mark is that of the reset, "" if there is nothing to tell.
	Mark string
	// Doubt says that nobody knows whether the store has made the reset, or will. It makes it only
	// while the key has the version Expect.
	Doubt  bool
	Expect string
}

// Forget resets a key, in memory and in the store. What other nodes have in memory of it is void:
// the store tells them of the reset before it takes anything of theirs. r is what [Engine.Void]
// tells them at once. If the store does not answer, the error wraps syncer.ErrUnknownOutcome, and
// the others are to be told of that, too.
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
	sh, en, err := e.seize(ctx, op)
	if err != nil {
		return Reset{}, err
	}
	defer e.release([]*entry{en})
	for ctx.Err() == nil {
		sh.mu.Lock()
		x := en.look()
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

// concludeReset takes the outcome of a reset. It is not done if the key had another version: by
// then the entry has merged that.
func (e *Engine) concludeReset(sh *shard, en *entry, x *Exchange) (r Reset, done bool, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	defer func() {
		sh.note(en)
		e.weigh(en)
	}()
	switch {
	case errors.Is(x.Err, syncer.ErrNotApplied), errors.Is(x.Err, syncer.ErrRefused):
		return Reset{}, true, fmt.Errorf("%w: reset: %v", syncer.ErrUnavailable, x.Err)
	case x.Err != nil:
		r = Reset{Mark: x.Mark, Doubt: true, Expect: x.Expect}
		en.suspect(r)
		return r, true, fmt.Errorf("%w: reset: %v", syncer.ErrUnknownOutcome, x.Err)
	case !x.Matched():
		en.settle(x, 0, e.opt.Now())
		return Reset{}, false, nil
	}
	en.clear()
	// The next one reads it anew. No reset of before is about what is added until then.
	en.mark, en.version, en.loaded = max(en.mark, x.Mark), "", false
	en.born = e.opt.Now()
	en.resolve(x)
	return Reset{Mark: x.Mark}, true, nil
}

// Void takes in that another node has reset a key, so that nothing is answered from what the reset
// has made void, whether the store can be reached by then or not. What is added from now on is
// younger: the mark is kept even if there is nothing else of the key, for as long as an idle key
// stays. It can be told late, repeatedly, and in any order. A reset in doubt makes nothing void
// before the store says so, which is asked about it before anything is added.
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
		return // without room it is read anew the next time
	}
	if r.Doubt {
		en.suspect(r)
	} else {
		en.learnMark(r.Mark, e.opt.Now())
	}
	sh.note(en)
	e.weigh(en)
}
