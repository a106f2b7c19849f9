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
// answer, the error wraps syncer.ErrUnknownOutcome.
func (e *Engine) Forget(ctx context.Context, ns, key []byte) error {
	op := &Op{NS: ns, Key: key}
	if e.opt.Store == nil {
		sh, id := e.lock(op)
		defer sh.mu.Unlock()
		if en := sh.keys[string(id)]; en != nil {
			e.forget(sh, en)
		}
		return nil
	}
	e.makeRoom()
	sh, en, err := e.seize(ctx, op)
	if err != nil {
		return err
	}
	defer e.release([]*entry{en})
	x := &Exchange{Partition: en.partition, NS: en.ns, Key: en.key, Version: rand.Text()[:13],
		Mark: newMark(e.opt.Now()), Reset: true, TTL: syncer.KeyTTL(en.ladder)}
	within, cancel := context.WithTimeout(ctx, e.opt.Timeout)
	defer cancel()
	e.opt.Store.Compare(within, []*Exchange{x})
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if x.Err != nil {
		en.unsure = true
		if errors.Is(x.Err, syncer.ErrNotApplied) {
			return fmt.Errorf("%w: reset: %v", syncer.ErrUnavailable, x.Err)
		}
		return fmt.Errorf("%w: reset: %v", syncer.ErrUnknownOutcome, x.Err)
	}
	en.clear()
	// The next one reads it anew. No reset of before is about what is added until then.
	en.mark, en.version, en.loaded, en.born = x.FoundMark, "", false, e.opt.Now()
	sh.note(en)
	e.weigh(en)
	return nil
}
