package distinct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"twotier.dev/twotier"
)

const (
	// maxTogether and bytesTogether bound one call to the store.
	maxTogether   = 256
	bytesTogether = 2 << 20
	// verifiedPerFlush bounds the idle keys that one flush compares.
	verifiedPerFlush = 2000
)

// runFlush flushes and compares until the engine is closed.
func (e *Engine) runFlush() {
	ticker := time.NewTicker(e.opt.FlushInterval)
	defer ticker.Stop()
	at := 0
	for {
		select {
		case <-e.run.Done():
			return
		case <-ticker.C:
		}
		e.flushAll()
		at = e.maintainShards(at)
		e.makeRoom()
	}
}

// flushAll exchanges every dirty key once. It stops when the store fails; the next call begins
// behind that shard, because another part of the store may answer.
func (e *Engine) flushAll() {
	first := int(e.next.Load())
	for i := range shards {
		at := (first + i) % shards
		sh := &e.shards[at]
		if !e.exchangeAll(collect(sh, maps.Keys(sh.dirty), (*entry).dirty)) {
			e.next.Store(int64(at+1) % shards)
			return
		}
	}
}

// exchangeAll exchanges lists of keys, and reports whether the store answered.
func (e *Engine) exchangeAll(lists [][]*entry) (answered bool) {
	answered = true
	for _, list := range lists {
		if !answered || e.run.Err() != nil {
			e.release(list)
			answered = false
			continue
		}
		answered = e.exchange(list)
	}
	return answered
}

// collect returns the keys of a shard for which due is true, in lists, and marks them as busy.
func collect(sh *shard, from iter.Seq[*entry], due func(en *entry) bool) (lists [][]*entry) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var list []*entry
	size := int64(0)
	for en := range from {
		if en.busy != nil || !due(en) {
			continue
		}
		en.busy = make(chan struct{})
		list, size = append(list, en), size+en.bytes
		if len(list) >= maxTogether || size >= bytesTogether {
			lists, list, size = append(lists, list), nil, 0
		}
	}
	if len(list) > 0 {
		lists = append(lists, list)
	}
	return lists
}

// release ends the busy state of keys that collect returned and that were not exchanged.
func (e *Engine) release(list []*entry) {
	for _, en := range list {
		sh := e.shardOf(en)
		sh.mu.Lock()
		if en.busy != nil {
			close(en.busy)
			en.busy = nil
		}
		sh.mu.Unlock()
	}
}

// exchange exchanges busy keys with the store, and reports whether the store answered.
func (e *Engine) exchange(list []*entry) bool {
	exchanges, seqs := make([]*Exchange, len(list)), make([]uint64, len(list))
	for i, en := range list {
		sh := e.shardOf(en)
		sh.mu.Lock()
		exchanges[i], seqs[i] = en.newExchange(e.opt.Now(), rand.Text()[:13])
		sh.mu.Unlock()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.Timeout)
	defer cancel()
	e.opt.Store.Compare(ctx, exchanges)
	answered := e.judgeReachable(exchanges, began)
	for i, en := range list {
		e.finishExchange(en, exchanges[i], seqs[i])
	}
	e.recordStoreState(answered, exchanges)
	return answered
}

// finishExchange processes the outcome of one exchange.
func (e *Engine) finishExchange(en *entry, x *Exchange, seq uint64) {
	sh := e.shardOf(en)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if x.Err == nil && !x.Matched() && en.loaded {
		e.stats.conflicts.Add(1)
	}
	if x.Matched() && x.Version != "" {
		e.stats.flushed.Add(1)
	}
	en.applyExchange(x, seq, e.opt.Now())
	sh.updateDirty(en)
	if sh.keys[en.id] == en {
		e.updateMemory(en)
	}
	if en.busy != nil {
		close(en.busy)
		en.busy = nil
	}
}

// recordStoreState records whether the store answers, and logs changes.
func (e *Engine) recordStoreState(answered bool, list []*Exchange) {
	failed := 0
	for _, x := range list {
		if x.Err != nil {
			failed++
		}
	}
	e.stats.failures.Add(int64(failed))
	if !answered {
		e.failed.Store(time.Now().UnixNano())
	}
	if e.down.Swap(!answered) == answered {
		if answered {
			e.opt.Logger.Info("Redis takes distinct values again")
		} else {
			e.opt.Logger.Warn("Redis does not take distinct values: keeping them in memory",
				"error", list[0].Err)
		}
	}
}

// isDown reports whether the store is known not to answer. After a while without exchanges, because
// there was nothing to exchange, the store may be back.
func (e *Engine) isDown() bool {
	return e.down.Load() &&
		time.Since(time.Unix(0, e.failed.Load())) < max(e.opt.VerifyInterval, e.opt.Timeout)
}

// Flush flushes until the store has all current values, or ctx is done. The error reports the
// number of keys left. Flush does not wait for keys that the store can't accept, see [ErrForeign],
// or keys that another node has taken over, see [Engine.HandOver].
func (e *Engine) Flush(ctx context.Context) error {
	if e.opt.Store == nil {
		return nil
	}
	for began := time.Now(); ; {
		e.flushAll()
		left := e.unflushed(func(en *entry) bool {
			return en.seq > en.handed &&
				(!errors.Is(en.failed, ErrForeign) || en.tried.Before(began))
		})
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: Redis lacks distinct values (keys: %d)",
				twotier.ErrUnavailable, left)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// unflushed returns the number of dirty keys for which counts is true.
func (e *Engine) unflushed(counts func(en *entry) bool) (n int) {
	for i := range e.shards {
		sh := &e.shards[i]
		sh.mu.Lock()
		for en := range sh.dirty {
			if en.dirty() && counts(en) {
				n++
			}
		}
		sh.mu.Unlock()
	}
	return n
}

// maintainShards maintains the keys of some shards, starting at shard at, and returns the shard to
// continue with: it forgets unneeded keys, and compares idle ones with the store.
func (e *Engine) maintainShards(at int) (next int) {
	// Every shard gets its turn within the interval.
	n := int(shards*e.opt.FlushInterval/e.opt.VerifyInterval) + 1
	left, old := verifiedPerFlush, time.Now().Add(-e.opt.VerifyInterval/2)
	for range min(n, shards) {
		sh := &e.shards[at%shards]
		e.sweep(sh)
		lists := collect(sh, maps.Values(sh.keys), func(en *entry) bool {
			due := left > 0 && en.loaded && en.compared.Before(old)
			if due {
				left--
			}
			return due
		})
		if !e.exchangeAll(lists) || left <= 0 {
			break
		}
		at++
	}
	return at % shards
}
