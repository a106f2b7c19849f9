package embedded

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"twotier/syncer"
)

// Options configure a [Store].
type Options struct {
	// MaxMemory bounds the memory in bytes, as estimated from keys and buckets. Default: 1 GiB.
	MaxMemory int64
	// Now is the clock that keys expire by. Default: time.Now.
	Now func() time.Time
}

// Store implements syncer.Store in memory.
type Store struct {
	opt Options

	mu         sync.Mutex
	partitions map[int]*partition
	bytes      int64
}

type partition struct {
	version uint64
	seqs    map[string]uint64
	keys    map[string]*hash
	swept   time.Time
}

type hash struct {
	buckets []syncer.Bucket
	expires time.Time
}

// Rough costs of what a partition holds, in bytes.
const (
	keyCost    = 120
	bucketCost = 32
	// sweepEvery is how often a partition that is written to looks for expired keys.
	sweepEvery = time.Minute
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

// Exchange implements syncer.Store. It never fails but for want of memory.
func (s *Store) Exchange(_ context.Context, rounds []*syncer.Round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opt.Now()
	for _, r := range rounds {
		s.round(r, now)
	}
}

func (s *Store) partition(id int) *partition {
	p := s.partitions[id]
	if p == nil {
		p = &partition{seqs: map[string]uint64{}, keys: map[string]*hash{}}
		s.partitions[id] = p
	}
	return p
}

func (s *Store) round(r *syncer.Round, now time.Time) {
	p := s.partition(r.Partition)
	stored := p.seqs[r.Writer]
	r.Err, r.Lost = nil, false
	if r.Republish {
		s.republish(p, r, now)
		return
	}
	if stored < r.Acked {
		r.Lost = true
		return
	}
	s.sweep(p, now)
	fresh := r.Seq > stored
	if fresh && s.bytes > s.opt.MaxMemory {
		r.Err = fmt.Errorf("%w: the embedded store is full (%d bytes)", syncer.ErrNotApplied, s.bytes)
		return
	}
	if fresh {
		p.seqs[r.Writer] = r.Seq
		p.version++
	}
	for i := range r.Keys {
		s.key(p, &r.Keys[i], fresh, now)
	}
	r.Version = p.version
}

func name(k *syncer.KeyRound) string { return string(k.NS) + "\x00" + string(k.Key) }

func (s *Store) key(p *partition, k *syncer.KeyRound, write bool, now time.Time) {
	k.Err, k.Loaded = nil, k.Loaded[:0]
	h := s.live(p, name(k), now)
	if write && h != nil && k.Reset {
		s.remove(p, name(k), h)
		h = nil
	}
	if write && h == nil && len(k.Adds) > 0 {
		h = &hash{expires: now.Add(math.MaxInt64)}
		p.keys[name(k)] = h
		s.bytes += keyCost + int64(len(k.NS)+len(k.Key))
	}
	for i := range k.Adds {
		b := &k.Adds[i]
		switch {
		case write:
			b.Stored = s.add(h, b)
		case h != nil:
			b.Stored = h.get(b)
		default:
			b.Stored = 0
		}
	}
	if h == nil {
		return
	}
	if write {
		for i := range k.Expired {
			s.bytes -= bucketCost * int64(h.drop(&k.Expired[i]))
		}
		if k.TTL > 0 {
			h.expires = now.Add(time.Duration(k.TTL) * time.Millisecond)
		}
	}
	if k.Load {
		k.Loaded = append(k.Loaded, h.buckets...)
	}
}

func (s *Store) republish(p *partition, r *syncer.Round, now time.Time) {
	for i := range r.Keys {
		k := &r.Keys[i]
		h := s.live(p, name(k), now)
		if h == nil {
			h = &hash{}
			p.keys[name(k)] = h
			s.bytes += keyCost + int64(len(k.NS)+len(k.Key))
		}
		h.expires = now.Add(time.Duration(k.TTL) * time.Millisecond)
		for j := range k.Adds {
			b := k.Adds[j]
			if b.N -= h.get(&b); b.N > 0 {
				s.add(h, &b)
			}
		}
	}
	if r.Final {
		p.seqs[r.Writer] = r.Acked
	}
	p.version++
	r.Version = p.version
}

// live returns a key's buckets unless they have expired.
func (s *Store) live(p *partition, name string, now time.Time) *hash {
	h := p.keys[name]
	if h != nil && now.After(h.expires) {
		s.remove(p, name, h)
		return nil
	}
	return h
}

func (s *Store) remove(p *partition, name string, h *hash) {
	delete(p.keys, name)
	s.bytes -= keyCost + int64(len(name)-1) + bucketCost*int64(len(h.buckets))
}

func (s *Store) add(h *hash, b *syncer.Bucket) int64 {
	for i := range h.buckets {
		if o := &h.buckets[i]; o.Level == b.Level && o.Index == b.Index {
			o.N += b.N
			return o.N
		}
	}
	h.buckets = append(h.buckets, syncer.Bucket{Level: b.Level, Index: b.Index, N: b.N})
	s.bytes += bucketCost
	return b.N
}

func (h *hash) get(b *syncer.Bucket) int64 {
	for i := range h.buckets {
		if o := &h.buckets[i]; o.Level == b.Level && o.Index == b.Index {
			return o.N
		}
	}
	return 0
}

func (h *hash) drop(b *syncer.Bucket) (dropped int) {
	for i := range h.buckets {
		if o := &h.buckets[i]; o.Level == b.Level && o.Index == b.Index {
			h.buckets = append(h.buckets[:i], h.buckets[i+1:]...)
			return 1
		}
	}
	return 0
}

func (s *Store) sweep(p *partition, now time.Time) {
	if now.Sub(p.swept) < sweepEvery {
		return
	}
	p.swept = now
	for name, h := range p.keys {
		if now.After(h.expires) {
			s.remove(p, name, h)
		}
	}
}

// Flush forgets everything, as FLUSHALL does. It exists for tests of loss.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions = map[int]*partition{}
	s.bytes = 0
}

// Get returns what the store holds of a key.
func (s *Store) Get(partition int, ns, key []byte) []syncer.Bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.live(s.partition(partition), string(ns)+"\x00"+string(key), s.opt.Now())
	if h == nil {
		return nil
	}
	return append([]syncer.Bucket(nil), h.buckets...)
}
