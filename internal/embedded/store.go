package embedded

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Options configure a [Store].
type Options struct {
	// MaxMemory bounds the memory in bytes, as estimated from keys, cells and resets. Default: 1
	// GiB.
	MaxMemory int64
	// Now is the clock that keys expire by. Default: time.Now.
	Now func() time.Time
}

// Store implements syncer.Store in memory.
type Store struct {
	opt    Options
	bytes  atomic.Int64
	epochs atomic.Uint64

	mu         sync.Mutex
	partitions map[int]*partition
}

// partition holds the keys of one partition, by namespace, a zero byte, and key.
type partition struct {
	store *Store

	mu                      sync.Mutex
	version, quieted, epoch uint64 // the epoch is 0 until the first round
	left                    bool   // the epoch began with data left by a loss
	last                    string // the last change: sequence and writer of the round
	seqs                    map[string]sequence
	keys                    map[string]*hash
	records                 map[string]*record // keys restored or reset in this epoch
	list                    keyList
	swept                   int64
	name                    []byte  // scratch memory
	found                   []*hash // scratch memory
	touched                 int64
}

// sequence is the sequence of a writer's last round, and its nonce.
type sequence struct{ n, nonce uint64 }

// hash is one key's cells.
type hash struct {
	name    string
	expires int64 // unix milliseconds
	cells   cells
}

// Rough memory costs in a partition, in bytes.
const (
	keyCost  = 160
	cellCost = 24 // of a cell, also in a record
	// recordCost is the cost of a record.
	recordCost = 120
	// sweepEvery is how often a partition with writes looks for expired keys, in milliseconds.
	sweepEvery = 60_000
)

// New returns an empty store.
func New(opt Options) *Store {
	if opt.MaxMemory == 0 {
		opt.MaxMemory = 1 << 30
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Store{opt: opt, partitions: map[int]*partition{}}
}

// Exchange implements syncer.Store. If memory has run out, it refuses to write.
func (s *Store) Exchange(_ context.Context, rounds []*syncer.Round) {
	now := s.opt.Now().UnixMilli()
	for _, r := range rounds {
		p := s.partition(r.Partition)
		p.mu.Lock()
		if p.sweep(now); r.Seq > 0 && s.bytes.Load() > s.opt.MaxMemory {
			r.Err = fmt.Errorf("%w: the store is full", syncer.ErrRefused)
		} else {
			p.applyRound(r, now)
		}
		p.mu.Unlock()
	}
}

func (s *Store) partition(id int) *partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[id]
	if p == nil {
		p = newPartition(s)
		s.partitions[id] = p
	}
	return p
}

func newPartition(s *Store) *partition {
	return &partition{store: s, seqs: map[string]sequence{}, keys: map[string]*hash{},
		records: map[string]*record{}}
}

func (p *partition) applyRound(r *syncer.Round, now int64) {
	r.Err, r.Lost, r.Used, r.Later, r.First = nil, false, false, false, false
	stored := p.seqs[r.Writer]
	r.Lost = stored.n < r.Acked || (r.Epoch != 0 || r.Republish) && p.isBehind(toldIn(r))
	r.Used = !r.Lost && r.Seq > 0 && r.Seq == stored.n && r.Nonce != stored.nonce
	if !r.Lost && !r.Used {
		r.Later = r.Seq > 0 && stored.n > r.Seq
		p.applyOrRead(r, r.Seq > stored.n, now)
	}
	p.reportState(r)
}

// applyOrRead applies a round, or only reads if the round is not fresh.
func (p *partition) applyOrRead(r *syncer.Round, fresh bool, now int64) {
	if r.Republish {
		p.republish(r, fresh, now)
		return
	}
	unchanged := fresh && r.Epoch != 0 && r.Version == p.version && r.Quieted == p.quieted
	p.countChange(r, fresh)
	p.prefetch(r.Keys)
	for i := range r.Keys {
		if k := &r.Keys[i]; !unchanged || k.Content == nil || !p.replace(k, now) {
			p.applyKey(r, k, fresh, now)
		}
	}
}

// replace replaces the cells of a key by its content. It reports false if the key is not there.
func (p *partition) replace(k *syncer.KeyRound, now int64) bool {
	h := p.find(k.NS, k.Key, now)
	if h == nil {
		return false
	}
	k.Err, k.Loaded = nil, k.Loaded[:0]
	before := len(h.cells)
	h.cells = h.cells[:0]
	for _, b := range k.Content {
		h.cells.add(b.Stretch, b.N)
	}
	for i := range k.Adds {
		k.Adds[i].Stored = h.cells.get(k.Adds[i].Stretch)
	}
	p.store.bytes.Add(cellCost * int64(len(h.cells)-before))
	p.finishWrite(k, h, false, now)
	return true
}

// isBehind reports whether the data differs from, or lags behind, the state last reported to a
// node.
func (p *partition) isBehind(told syncer.Told) bool {
	return told.Epoch != p.epoch || p.version < told.Version || p.quieted < told.Quieted ||
		p.lacksChange(told.LastChange)
}

// toldIn returns the state last reported to the writer of a round.
func toldIn(r *syncer.Round) syncer.Told {
	return syncer.Told{Epoch: r.Epoch, Version: r.Version, Quieted: r.Quieted,
		LastChange: r.LastChange}
}

// lacksChange reports whether the data lacks a change that was reported to a writer.
func (p *partition) lacksChange(change string) bool {
	if change == "" || change == p.last {
		return false
	}
	number, writer, _ := strings.Cut(change, " ")
	seq, _ := strconv.ParseUint(number, 10, 64)
	return p.seqs[writer].n < seq
}

// recordSequence records that a round has been applied.
func (p *partition) recordSequence(r *syncer.Round) {
	p.seqs[r.Writer] = sequence{r.Seq, r.Nonce}
	p.last = strconv.FormatUint(r.Seq, 10) + " " + r.Writer
}

func (p *partition) reportState(r *syncer.Round) {
	r.Epoch, r.Version, r.Quieted, r.LastChange = p.epoch, p.version, p.quieted, p.last
}

// countChange draws an epoch if there is none, and counts a fresh round as a change.
func (p *partition) countChange(r *syncer.Round, fresh bool) {
	begun := p.epoch == 0
	if begun {
		r.First = len(p.keys) == 0
		p.beginEpoch(0, !r.First)
	}
	if !fresh {
		return
	}
	p.recordSequence(r)
	if r.Quiet {
		p.quieted++
	} else if !begun {
		p.version++
	}
}

// beginEpoch draws an epoch higher than after. left marks data left by a loss.
func (p *partition) beginEpoch(after uint64, left bool) {
	p.epoch, p.left = max(p.store.epochs.Add(1), after+1), left
	p.version++
	for name, rec := range p.records {
		p.dropRecord(name, rec)
	}
}

// prefetch reads the data of a round's keys before the first is processed. Independent reads wait
// for memory at the same time; with a million keys that is most of the time of a round. The sum
// only exists so that the compiler doesn't remove the reads.
func (p *partition) prefetch(keys []syncer.KeyRound) {
	p.found = p.found[:0]
	for i := range keys {
		p.setName(keys[i].NS, keys[i].Key)
		if h := p.keys[string(p.name)]; h != nil {
			p.found = append(p.found, h)
		}
	}
	for _, h := range p.found {
		if len(h.cells) > 0 {
			p.touched += h.cells[0].Start
		}
	}
	clear(p.found)
}

func (p *partition) setName(ns, key []byte) {
	p.name = append(append(append(p.name[:0], ns...), 0), key...)
}

// find returns a key's cells, or nil if it has none or they have expired. It sets p.name to the
// key's name.
func (p *partition) find(ns, key []byte, now int64) *hash {
	p.setName(ns, key)
	h := p.keys[string(p.name)]
	if h != nil && now > h.expires {
		p.remove(h)
		return nil
	}
	return h
}

// insert creates an entry for the key that find has just looked for.
func (p *partition) insert(room int) *hash {
	h := &hash{name: string(p.name), expires: math.MaxInt64, cells: make(cells, 0, room)}
	p.keys[h.name] = h
	p.appendToList()
	p.store.bytes.Add(keyCost + int64(len(p.name)))
	return h
}

func (p *partition) remove(h *hash) {
	delete(p.keys, h.name)
	p.store.bytes.Add(-keyCost - int64(len(h.name)) - cellCost*int64(len(h.cells)))
}

// applyKey applies a round's part for one key, or only reads.
func (p *partition) applyKey(r *syncer.Round, k *syncer.KeyRound, write bool, now int64) {
	k.Err, k.Loaded = nil, k.Loaded[:0]
	h := p.find(k.NS, k.Key, now)
	if write && h.overflows(k) {
		k.Err = fmt.Errorf("%w: the count would overflow", syncer.ErrNotApplied)
		return
	}
	if write && k.Reset {
		p.forget(h, k, now)
		h = nil
	}
	if write && k.Fold && h != nil && k.Ladder != nil {
		h = p.fold(h, k.Ladder, r.Now, k.ExactFrom)
	}
	created := write && h == nil && len(k.Adds) > 0
	if created {
		h = p.insert(len(k.Adds))
	}
	grown := false
	for i := range k.Adds {
		b := &k.Adds[i]
		switch {
		case h == nil:
			b.Stored = 0
		case write:
			b.Stored = p.add(h, b.Stretch, b.N)
			grown = grown || b.Stored == b.N
		default:
			b.Stored = h.cells.get(b.Stretch)
		}
	}
	if h == nil {
		return
	}
	if k.Load {
		k.Loaded = h.appendTo(k.Loaded)
	}
	if write {
		p.finishWrite(k, h, created, now)
		if grown {
			p.foldMany(r, k, h)
		}
	}
}

// finishWrite sets the time to live of the key named p.name after a write, or removes it with its
// last value.
func (p *partition) finishWrite(k *syncer.KeyRound, h *hash, created bool, now int64) {
	if len(h.cells) == 0 {
		p.remove(h)
	} else if k.TTL > 0 && (created || k.Renew) {
		h.expires = now + k.TTL
	}
}

// foldMany folds the cells of the key named p.name if they are too many for its ladder.
func (p *partition) foldMany(r *syncer.Round, k *syncer.KeyRound, h *hash) {
	if k.Ladder != nil && len(h.cells) > k.Ladder.MaxCells() {
		p.fold(h, k.Ladder, r.Now, 0)
	}
}

// fold folds the cells of the key named p.name. It returns nil if nothing is left.
func (p *partition) fold(h *hash, l *leaparray.Ladder, now, exactFrom int64) *hash {
	had := len(h.cells)
	h.cells.fold(l, now, exactFrom)
	p.store.bytes.Add(cellCost * int64(len(h.cells)-had))
	if len(h.cells) == 0 {
		p.remove(h)
		return nil
	}
	return h
}

func (p *partition) add(h *hash, s leaparray.Stretch, n int64) int64 {
	had := len(h.cells)
	n = h.cells.add(s, n)
	p.store.bytes.Add(cellCost * int64(len(h.cells)-had))
	return n
}

// overflows reports whether a count would no longer fit 64 bits after the adds.
func (h *hash) overflows(k *syncer.KeyRound) bool {
	if h == nil || k.Reset {
		return false
	}
	for i := range k.Adds {
		if overflows(h.get(k.Adds[i].Stretch), k.Adds[i].N) {
			return true
		}
	}
	return false
}

func (h *hash) get(s leaparray.Stretch) int64 {
	if h == nil {
		return 0
	}
	return h.cells.get(s)
}

func (h *hash) appendTo(list []syncer.Bucket) []syncer.Bucket {
	for _, c := range h.cells {
		list = append(list, syncer.Bucket{Stretch: c.Stretch, N: c.N})
	}
	return list
}

// sweep drops expired keys and records periodically.
func (p *partition) sweep(now int64) {
	if now-p.swept < sweepEvery {
		return
	}
	p.swept = now
	for _, h := range p.keys {
		if now > h.expires {
			p.remove(h)
		}
	}
	for name, rec := range p.records {
		if now > rec.expires {
			p.dropRecord(name, rec)
		}
	}
}
