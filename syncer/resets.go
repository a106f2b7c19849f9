package syncer

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// dropKey drops all synced and pending counts of a key, and a pending reset of it.
func (g *guarded) dropKey(hash uint32, ns, key []byte) {
	at := g.keys.Find(hash, ns, key)
	if at == 0 {
		return
	}
	e := g.keys.EntryAt(at)
	g.resetEntry(at, e, hash)
	e.ClearFlags(keys.FlagReset)
	e.SetFlags(keys.FlagCold)
}

// resetEntry empties an entry and makes the next round delete the key before anything else. Counts
// of it in the answer to a round in flight are ignored.
func (g *guarded) resetEntry(r arena.Ref, e keys.Entry, hash uint32) {
	g.loads.VoidKey(rounds.LoadName(e.Name()))
	for _, unacked := range g.outbox.All() {
		unacked.MarkForgotten(r, hash, e)
	}
	if job := g.restoration.job; job != nil && job.round != nil {
		job.round.MarkForgotten(r, hash, e)
	}
	g.erase(r, e)
	if !g.keys.NoStore {
		e.SetFlags(keys.FlagReset)
		g.markDirty(r, e)
	}
}

// endReset records that a caller of ResetKey waits no more. A DropKey that waits for it looks
// again.
func (p *partition) endReset(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resets[name]--; p.resets[name] == 0 {
		delete(p.resets, name)
	}
	p.settled.wake()
}
