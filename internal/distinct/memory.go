package distinct

import (
	"hash/maphash"
	"math/rand/v2"
	"time"
)

const (
	// samples is the number of keys examined to find one to forget.
	samples = 8
	// mostSamples is the number examined if none of them can be forgotten.
	mostSamples = 64
	// roomAttempts bounds the keys forgotten at a time.
	roomAttempts = 64
	// linger is how long a key that is empty, or owned by another node, stays after its last use.
	linger = time.Second
)

func (e *Engine) shardOf(en *entry) *shard {
	return &e.shards[maphash.String(e.seed, en.id)%shards]
}

// makeRoom forgets flushed keys while memory is over its bound: of a few sampled keys, the one
// unused for longest.
func (e *Engine) makeRoom() {
	for range roomAttempts {
		if e.bytes.Load() <= e.opt.MaxMemory {
			return
		}
		e.evictOne(&e.shards[rand.IntN(shards)])
	}
}

func (e *Engine) evictOne(sh *shard) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var idlest *entry
	n := 0
	for _, en := range sh.keys {
		if !en.dirty() && en.busy == nil && (idlest == nil || en.used.Before(idlest.used)) {
			idlest = en
		}
		if n++; n >= samples && idlest != nil || n == mostSamples {
			break
		}
	}
	if idlest != nil {
		e.forget(sh, idlest)
		e.stats.evicted.Add(1)
	}
}

// runSweep forgets keys that no window reaches any more, in an engine without a store.
func (e *Engine) runSweep() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for at := 0; ; at++ {
		select {
		case <-e.run.Done():
			return
		case <-ticker.C:
			e.sweep(&e.shards[at%shards])
		}
	}
}

// sweep forgets the keys of a shard that no window reaches any more. It also forgets keys of other
// nodes once they have been compared with the store since their last use: the store may have lost
// them meanwhile.
func (e *Engine) sweep(sh *shard) {
	now := e.opt.Now()
	idle := time.Now().Add(-linger)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, en := range sh.keys {
		if en.dirty() || en.busy != nil || !en.used.Before(idle) {
			continue
		}
		en.prune(now)
		e.updateMemory(en)
		if en.values.IsEmpty() || en.compared.After(en.used) && e.isForeign(en) {
			e.forget(sh, en)
		}
	}
}

// isForeign reports whether another node owns a key.
func (e *Engine) isForeign(en *entry) bool {
	if e.owner == nil {
		return false
	}
	_, decides := e.owner.Term(en.partition)
	return !decides
}
