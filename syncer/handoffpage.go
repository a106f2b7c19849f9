package syncer

import (
	"fmt"
	"slices"
	"time"
)

// Bounds of what is told about the keys of a partition besides what is pending: a new owner reads
// the rest from the store, when it is asked for.
const (
	// hotIdle is how long ago a key may have been used, in seconds, to be told about in any case.
	hotIdle = 60
	// coldBytes is the size of a partition from which on only hot keys are told about.
	coldBytes = 1 << 20
	// stampShift is where a cursor says which handoff it belongs to.
	stampShift = 40
)

// HandoffPage returns a part of what is to be handed off of a partition after BeginHandoff: as much
// as fits into about so many bytes, from a cursor on, 0 for the beginning. next is the cursor of
// the next page, 0 after the last. The same cursor brings the same page for as long as the handoff
// is neither finished nor canceled; after that it is an error.
func (c *Counter) HandoffPage(partition int, cursor uint64,
	budget int) (h *Handoff, next uint64, err error) {
	p := &c.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handoff == nil {
		return nil, 0, fmt.Errorf("partition %d: its handoff has not begun", partition)
	}
	stamp := p.handoffs << stampShift
	if cursor != 0 && cursor>>stampShift<<stampShift != stamp {
		return nil, 0, fmt.Errorf("partition %d: its handoff has begun once more", partition)
	}
	cursor &^= stamp
	h = &Handoff{Partition: partition, EpochKnown: p.store.known, MaybeSent: p.outbox.maybeSent ||
		p.handoff.told && cursor == 0}
	if since := p.unflushedSince(); !since.IsZero() {
		h.Unflushed = time.Since(since)
	}
	last := p.store.latest()
	h.Epoch, h.Version, h.Quieted = last.epoch, last.version, last.quieted
	p.handoff.told = true
	rounds := uint64(len(p.handoff.rounds))
	for ; cursor < rounds && budget > 0; cursor++ {
		r := p.handoff.rounds[cursor].copy()
		h.Rounds = append(h.Rounds, r)
		budget -= r.size()
	}
	slots := uint64(p.keys.table.Slots())
	for ; cursor < rounds+slots && budget > 0; cursor++ {
		at := p.keys.table.At(int(cursor - rounds))
		if at == 0 {
			continue
		}
		e := p.keys.entry(at)
		if k, ok := c.stateOf(p, e); ok {
			h.Keys = append(h.Keys, k)
			budget -= k.size()
		}
	}
	if cursor < rounds+slots {
		return h, cursor | stamp, nil
	}
	return h, 0, nil
}

// stateOf returns what is known of a key, if it is worth telling, be it out of date: when the store
// loses everything, that is all there is. If it could not be asked whether it still has everything,
// nothing is left out.
func (c *Counter) stateOf(p *partition, e entry) (k KeyState, ok bool) {
	idle := e.idle(c.clock.seconds(c.opt.Now()))
	k.Cold = !p.warm(e) || p.store.mayHaveChanged() // others may have counted it since
	if !p.store.mustVerify && idle > hotIdle && p.keys.bytes() > coldBytes ||
		k.Cold && e.synced() == 0 {
		return k, false
	}
	ns, key := e.name()
	k.NS, k.Key = slices.Clone(ns), slices.Clone(key)
	l := p.keys.ladder(e)
	l.EachKept(p.keys.synced(e), func(level int, idx, n int64) bool {
		k.Buckets = append(k.Buckets, Bucket{Level: uint8(level), Index: idx, N: n})
		return true
	})
	return k, true
}

// size is about what a key takes to be told, in bytes.
func (k *KeyState) size() int { return 8 + len(k.NS) + len(k.Key) + 8*len(k.Buckets) }

func (r *Round) size() (n int) {
	for i := range r.Keys {
		k := &r.Keys[i]
		n += 16 + len(k.NS) + len(k.Key) + 8*(len(k.Adds)+len(k.Expired))
	}
	return n
}

// copy returns all of a round that another counter needs to send it.
func (r *Round) copy() *Round {
	c := &Round{Partition: r.Partition, Writer: r.Writer, Seq: r.Seq, Nonce: r.Nonce,
		Acked: r.Acked, Keys: make([]KeyRound, len(r.Keys))}
	for i := range r.Keys {
		k := &r.Keys[i]
		c.Keys[i] = KeyRound{
			NS: slices.Clone(k.NS), Key: slices.Clone(k.Key), Reset: k.Reset, Load: k.Load,
			TTL: k.TTL, Forgotten: k.Forgotten,
			Adds: slices.Clone(k.Adds), Expired: slices.Clone(k.Expired),
		}
	}
	return c
}
