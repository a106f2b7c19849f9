package distinct

import (
	"context"
)

// Forget resets a key, in memory and in the store. It returns the time of the reset, which is to be
// passed to [Engine.Void] on all other nodes: values seen until then are void everywhere. If the
// store does not acknowledge it, the error wraps twotier.ErrUnknownOutcome: it is in memory, and
// will be flushed.
func (e *Engine) Forget(ctx context.Context, ns, key []byte) (until int64, err error) {
	op := &Op{NS: ns, Key: key}
	e.makeRoom()
	sh, id := e.lock(op)
	if e.opt.Store == nil {
		defer sh.mu.Unlock()
		if en := sh.keys[string(id)]; en != nil {
			en.values.Forget(max(e.opt.Now(), en.values.Newest()))
			e.updateMemory(en)
		}
		return 0, nil
	}
	en, err := e.entry(sh, id, op, true)
	if err != nil {
		sh.mu.Unlock()
		return 0, err
	}
	until = max(e.opt.Now(), en.values.Newest())
	e.reset(sh, en, until)
	seq := en.seq
	sh.mu.Unlock()
	err = e.awaitFlush(ctx, sh, en, seq)
	sh.mu.Lock()
	en.loaded = false // others may have added to it since
	sh.mu.Unlock()
	return until, err
}

// reset resets an entry of a locked shard. The next operation reads the key anew.
func (e *Engine) reset(sh *shard, en *entry, until int64) {
	if !en.values.Forget(until) {
		return
	}
	en.loaded = false
	en.touch()
	e.updateMemory(en)
	sh.updateDirty(en)
}

// Void records another node's reset of a key, so that no answer relies on values voided by it,
// whether or not the store can be reached, and that values added from now on are younger. Calls may
// come late, repeatedly, and in any order.
func (e *Engine) Void(ns, key []byte, until int64) {
	if e.opt.Store == nil {
		return
	}
	e.makeRoom()
	op := &Op{NS: ns, Key: key}
	sh, id := e.lock(op)
	defer sh.mu.Unlock()
	if en, err := e.entry(sh, id, op, true); err == nil {
		e.reset(sh, en, until)
	} // without room, the key is read anew the next time
}
