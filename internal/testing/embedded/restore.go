package embedded

import (
	"maps"
	"slices"
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
	}
	rec.expires = now + max(recordTTL.Milliseconds(), k.TTL)
	return rec
}

// dropRecord forgets the restored counts and the reset of a key.
func (p *partition) dropRecord(name string, rec *record) {
	delete(p.records, name)
}

// forget drops the key named p.name, if it exists, and prevents its restoration in this epoch.
func (p *partition) forget(h *hash, k *syncer.KeyRound, now int64) {
	if h != nil {
		delete(p.keys, h.name)
	}
	rec := p.record(k, now)
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
	for _, c := range list {
		rec.cells.add(c.Stretch, c.N)
	}
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

// Image is a copy of a store's data.
type Image struct{ partitions map[int]*partition }

// Image copies all data of the store. It exists for tests of loss.
func (s *Store) Image() *Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Image{s.copyOf(s.partitions)}
}

// Rewind restores the data of an image, like a failover to a replica that lagged behind. It exists
// for tests of loss.
func (s *Store) Rewind(to *Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions = s.copyOf(to.partitions)
}

// Flush drops everything, as FLUSHALL does. It exists for tests of loss.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions = map[int]*partition{}
}

func (s *Store) copyOf(partitions map[int]*partition) map[int]*partition {
	copies := map[int]*partition{}
	for id, p := range partitions {
		copies[id] = p.copy()
	}
	return copies
}

func (p *partition) copy() *partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := newPartition(p.store)
	c.version, c.quieted, c.epoch, c.left = p.version, p.quieted, p.epoch, p.left
	c.last, c.swept, c.seqs = p.last, p.swept, maps.Clone(p.seqs)
	c.expired = maps.Clone(p.expired)
	c.list = keyList{p.list.part, slices.Clone(p.list.hashes)}
	for name, h := range p.keys {
		c.keys[name] = &hash{name: name, expires: h.expires, again: h.again,
			cells: slices.Clone(h.cells),
			log:   slices.Clone(h.log)}
	}
	for name, rec := range p.records {
		c.records[name] = &record{expires: rec.expires, reset: rec.reset,
			cells: slices.Clone(rec.cells)}
	}
	return c
}
