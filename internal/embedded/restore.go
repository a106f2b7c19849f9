package embedded

import (
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// recordTTL is the minimum lifetime of a restoration record. A record lives for twice the span of
// the key's ladder if that is longer. After that, counts restored once more have left every window
// anyway.
const recordTTL = 48 * time.Hour

// record holds the counts of a key restored in the current epoch.
type record struct {
	expires int64 // unix milliseconds
	reset   bool  // the key was reset in this epoch: earlier counts must not come back
	cells   cells
}

// record returns the record of the key named p.name, and creates it if necessary.
func (p *partition) record(k *syncer.KeyRound, now int64) *record {
	rec := p.records[string(p.name)]
	if rec == nil {
		rec = &record{}
		p.records[string(p.name)] = rec
		p.store.bytes.Add(recordCost + int64(len(p.name)))
	}
	rec.expires = now + max(recordTTL.Milliseconds(), k.TTL)
	return rec
}

// dropRecord forgets the restored counts and the reset of a key.
func (p *partition) dropRecord(name string, rec *record) {
	delete(p.records, name)
	p.store.bytes.Add(-recordCost - int64(len(name)) - cellCost*int64(len(rec.cells)))
}

// forget drops the key named p.name, if it exists, and prevents its restoration in this epoch.
func (p *partition) forget(h *hash, k *syncer.KeyRound, now int64) {
	if h != nil {
		p.remove(h)
	}
	rec := p.record(k, now)
	p.store.bytes.Add(-cellCost * int64(len(rec.cells)))
	rec.reset, rec.cells = true, nil
}

// republish restores the counts of a round that have not been restored in this epoch yet.
func (p *partition) republish(r *syncer.Round, fresh bool, now int64) {
	if !fresh {
		for i := range r.Keys {
			k := &r.Keys[i]
			reportRestored(p.find(k.NS, k.Key, now), k)
		}
		return
	}
	if p.epoch <= r.After {
		p.beginEpoch(r.After, p.epoch != 0 || len(p.keys) > 0)
	}
	p.version++
	p.recordSequence(r)
	for i := range r.Keys {
		p.restore(&r.Keys[i], now)
	}
}

// restore restores one key. Writers may hold the same events at different precision, because they
// have folded at different times. So the comparison with earlier restorations uses the sums of the
// widest cells, see [leaparray.MissingCells].
func (p *partition) restore(k *syncer.KeyRound, now int64) {
	h := p.find(k.NS, k.Key, now)
	add := p.missing(k, h, now)
	created := h == nil && len(add) > 0
	if created {
		h = p.insert(len(add))
	}
	for _, c := range add {
		p.add(h, c.Stretch, c.N)
		h.log = append(h.log, syncer.Bucket{Stretch: c.Stretch, N: c.N})
	}
	reportRestored(h, k)
	if h != nil {
		p.finishWrite(k, h, created, now)
	}
}

// missing returns the cells of the key named p.name still to be added after some were restored, and
// records them: the missing counts, and all marks, which are not counted. Values need no record.
func (p *partition) missing(k *syncer.KeyRound, h *hash, now int64) (add cells) {
	values := len(k.Adds) > 0 && k.Adds[0].IsValue()
	recorded := p.records[string(p.name)] != nil
	known := make(cells, 0, len(k.Adds))
	for i := range k.Adds {
		known = append(known, leaparray.Cell{Stretch: k.Adds[i].Stretch, N: k.Adds[i].N})
	}
	if values && !recorded {
		return known
	}
	rec := p.record(k, now)
	switch {
	case rec.reset:
		return nil
	case values:
		return known
	}
	if h != nil && p.left && !recorded {
		p.recordRestored(rec, nonZero(h.cells))
	}
	if len(known) > 0 {
		add = leaparray.MissingCells(known, rec.cells)
	}
	for _, c := range known {
		if c.N == 0 {
			add = append(add, c)
		}
	}
	p.recordRestored(rec, nonZero(add))
	return add
}

// recordRestored adds restored counts to a key's record.
func (p *partition) recordRestored(rec *record, list []leaparray.Cell) {
	had := len(rec.cells)
	for _, c := range list {
		rec.cells.add(c.Stretch, c.N)
	}
	p.store.bytes.Add(cellCost * int64(len(rec.cells)-had))
}

// reportRestored reports what a key has after its restoration: all cells, or when each of the
// restored values was seen.
func reportRestored(h *hash, k *syncer.KeyRound) {
	k.Err, k.Made, k.Read, k.Loaded, k.LoadedLog = nil, false, false, k.Loaded[:0], 0
	switch {
	case len(k.Adds) > 0 && k.Adds[0].IsValue():
		for i := range k.Adds {
			k.Adds[i].Stored = h.get(k.Adds[i].Stretch)
		}
	case h != nil:
		k.Loaded, k.LoadedLog = h.appendTo(k.Loaded), len(h.log)
		fallthrough
	default:
		k.Read = true
	}
}
