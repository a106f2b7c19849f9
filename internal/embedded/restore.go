package embedded

import (
	"time"

	"twotier.dev/twotier/syncer"
)

// recordTTL is how long it is remembered what was restored of a key, at the least: it is twice the
// span of the key's ladder if that is more. What was restored has left every window then, should it
// be told once more.
const recordTTL = 48 * time.Hour

// record is what was restored of a key in the present epoch.
type record struct {
	expires int64 // unix milliseconds
	reset   bool  // it was reset in this epoch: what was known before must not come back
	buckets map[uint64]int64
}

// record returns what is remembered of the key whose name is p.name.
func (p *partition) record(k *syncer.KeyRound, now int64) *record {
	rec := p.records[string(p.name)]
	if rec == nil {
		rec = &record{buckets: map[uint64]int64{}}
		p.records[string(p.name)] = rec
	}
	ttl := recordTTL.Milliseconds()
	if k.Ladder != nil {
		ttl = max(ttl, 2*k.Ladder.Span())
	}
	rec.expires = now + ttl
	return rec
}

// forget drops the key whose name is p.name, if it is there, and lets nobody restore it in this
// epoch.
func (p *partition) forget(h *hash, k *syncer.KeyRound, now int64) {
	if h != nil {
		p.remove(string(p.name), h)
	}
	rec := p.record(k, now)
	rec.reset = true
	clear(rec.buckets)
}

// republish restores counts, of each bucket only what has not been restored in this epoch.
func (p *partition) republish(r *syncer.Round, fresh bool, now int64) {
	if !fresh {
		for i := range r.Keys {
			p.key(&r.Keys[i], false, now)
		}
		return
	}
	if p.epoch <= r.After {
		p.begin(r.After, p.epoch != 0 || len(p.keys) > 0)
	} else {
		p.version++
	}
	p.note(r)
	for i := range r.Keys {
		p.restore(&r.Keys[i], now)
	}
}

func (p *partition) restore(k *syncer.KeyRound, now int64) {
	h := p.find(k.NS, k.Key, now)
	rec := p.record(k, now)
	if h == nil && !rec.reset {
		h = p.insert(len(k.Adds))
	}
	for i := range k.Adds {
		b := &k.Adds[i]
		if rec.reset {
			b.Stored = h.get(b)
			continue
		}
		had, ok := rec.buckets[tag(b)]
		if !ok && p.left {
			had = h.get(b)
		}
		rec.buckets[tag(b)] = max(had, b.N)
		if b.N > had || b.N == 0 && had == 0 { // the newest of a level is kept even if it is zero
			p.add(h, b, b.N-had)
		}
		b.Stored = h.get(b)
	}
	if h != nil {
		p.renew(h, k, now)
	}
}
