package embedded

import (
	"context"
	"math"
	"slices"
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
	// Now is the clock that keys expire by. Default: time.Now.
	Now func() time.Time
}

// Store implements syncer.Store in memory.
type Store struct {
	opt    Options
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
	expired                 map[string]bool    // names of keys that have expired
	list                    keyList
	swept                   int64
	name                    []byte // scratch memory
}

// sequence is the sequence of a writer's last round, and its nonce.
type sequence struct{ n, nonce uint64 }

// hash is one key's cells.
type hash struct {
	name    string
	expires int64 // unix milliseconds
	cells   cells
	log     []syncer.Bucket // of cells, what was added without their content
	again   bool            // the key has expired before, and counters may remember what it had
}

// sweepEvery is how often a partition with writes looks for expired keys, in milliseconds.
const sweepEvery = 60_000

// New returns an empty store.
func New(opt Options) *Store {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Store{opt: opt, partitions: map[int]*partition{}}
}

// Exchange implements syncer.Store.
func (s *Store) Exchange(_ context.Context, rounds []*syncer.Round) {
	now := s.opt.Now().UnixMilli()
	for _, r := range rounds {
		p := s.partition(r.Partition)
		p.mu.Lock()
		p.sweep(now)
		p.applyRound(r, now)
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
		records: map[string]*record{}, expired: map[string]bool{}}
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
	unchanged := fresh && r.Epoch != 0 && r.Version == p.version
	silent := unchanged && r.Quieted == p.quieted && r.LastChange == p.last
	p.countChange(r, fresh)
	for i := range r.Keys {
		k := &r.Keys[i]
		fits := k.Content != nil && unchanged && (silent || k.ContentLog != syncer.WholeLog)
		p.applyKey(k, fresh, fits, now)
	}
}

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

func (p *partition) setName(ns, key []byte) {
	p.name = append(append(append(p.name[:0], ns...), 0), key...)
}

// find returns a key's cells, or nil if it has none or they have expired. It sets p.name to the
// key's name.
func (p *partition) find(ns, key []byte, now int64) *hash {
	p.setName(ns, key)
	h := p.keys[string(p.name)]
	if h != nil && now > h.expires {
		delete(p.keys, h.name)
		p.expired[h.name] = true
		return nil
	}
	return h
}

// insert creates an entry for the key that find has just looked for.
func (p *partition) insert(room int) *hash {
	h := &hash{name: string(p.name), expires: math.MaxInt64, cells: make(cells, 0, room)}
	h.again = p.expired[h.name]
	p.keys[h.name] = h
	p.appendToList()
	return h
}

// applyKey applies a round's part for one key, or only reads.
func (p *partition) applyKey(k *syncer.KeyRound, write, fits bool, now int64) {
	k.Err, k.Made, k.Loaded, k.LoadedLog = nil, false, k.Loaded[:0], 0
	h := p.find(k.NS, k.Key, now)
	if write && k.Reset {
		p.forget(h, k, now)
		h = nil
	}
	k.Read = k.Load || k.New && (h != nil || !write) || k.Content != nil && write && !fits
	created := write && h == nil && len(k.Adds)+len(k.Content) > 0
	if created {
		h = p.insert(len(k.Adds))
		k.Made = !k.New && !k.Renew
	}
	switch {
	case h == nil:
	case write && fits:
		p.write(h, k)
	case write:
		for i := range k.Adds {
			p.add(h, k.Adds[i].Stretch, k.Adds[i].N)
		}
		if !created || !k.New {
			h.log = append(h.log, k.Adds...)
		}
	}
	for i := range k.Adds {
		k.Adds[i].Stored = h.get(k.Adds[i].Stretch)
	}
	if h == nil {
		return
	}
	if k.Read {
		k.Loaded, k.LoadedLog = h.appendTo(k.Loaded), len(h.log)
	}
	if write {
		p.finishWrite(k, h, created || fits && k.Rewrite, now)
	}
}

func (p *partition) finishWrite(k *syncer.KeyRound, h *hash, created bool, now int64) {
	if len(h.cells) == 0 {
		delete(p.keys, h.name)
	} else if k.TTL > 0 && (created || k.Renew) {
		h.expires = now + k.TTL
	}
}

func (p *partition) add(h *hash, s leaparray.Stretch, n int64) int64 {
	n = h.cells.add(s, n)
	return n
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
	slices.SortFunc(list, syncer.Bucket.Compare)
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
			delete(p.keys, h.name)
			p.expired[h.name] = true
		}
	}
	for name, rec := range p.records {
		if now > rec.expires {
			p.dropRecord(name, rec)
		}
	}
}
