package embedded

import (
	"time"

	"twotier.dev/twotier/syncer"
)

// recordTTL is the least time that a restoration record is kept. It is kept for twice the span of
// the key's ladder if that is longer. After that, counts that are restored once more have left
// every window anyway.
const recordTTL = 48 * time.Hour

// record says what was restored of a key in the current epoch.
type record struct {
	expires int64 // unix milliseconds
	reset   bool  // the key was reset in this epoch: earlier counts must not come back
	buckets map[uint64]int64
}

// record returns the record of the key whose name is in p.name, making it if necessary.
func (p *partition) record(k *syncer.KeyRound, now int64) *record {
	rec := p.records[string(p.name)]
	if rec == nil {
		rec = &record{}
		p.records[string(p.name)] = rec
		p.store.bytes.Add(recordCost + int64(len(p.name)))
	}
	ttl := recordTTL.Milliseconds()
	if k.Ladder != nil {
		ttl = max(ttl, 2*k.Ladder.Span())
	}
	rec.expires = now + ttl
	return rec
}

// noteRestored records how much of a bucket was restored.
func (p *partition) noteRestored(rec *record, tag uint64, n int64) {
	if rec.buckets == nil {
		rec.buckets = map[uint64]int64{}
	}
	if _, ok := rec.buckets[tag]; !ok {
		p.store.bytes.Add(restoredCost)
	}
	rec.buckets[tag] = n
}

// dropRecord forgets what was restored of a key, or that it was reset.
func (p *partition) dropRecord(name string, rec *record) {
	delete(p.records, name)
	p.store.bytes.Add(-recordCost - int64(len(name)) - restoredCost*int64(len(rec.buckets)))
}

// forget drops the key whose name is in p.name, if it exists, and prevents it from being restored
// in this epoch.
func (p *partition) forget(h *hash, k *syncer.KeyRound, now int64) {
	if h != nil {
		p.remove(string(p.name), h)
	}
	rec := p.record(k, now)
	p.store.bytes.Add(-restoredCost * int64(len(rec.buckets)))
	rec.reset, rec.buckets = true, nil
}

// republish restores counts: of each bucket, only what has not been restored in this epoch.
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
		p.noteRestored(rec, tag(b), max(had, b.N))
		if b.N > had || b.N == 0 && had == 0 { // a level's newest bucket is kept even if zero
			p.add(h, b, b.N-had)
		}
		b.Stored = h.get(b)
	}
	if h != nil {
		p.renew(h, k, now)
	}
}
