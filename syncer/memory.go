package syncer

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/syncer/internal/keys"
)

// quotaTries is how many other partitions are tried to find an evictable key of a namespace.
const quotaTries = 16

// fullPause is how long nothing more is logged about full memory.
const fullPause = time.Minute

// memory keeps the keys of all partitions within the budget. It decides whether there is room for
// another key, drops counts that have left every window, and makes the largest partition give up
// room for small ones. Its methods lock the partitions that they use, except for a partition passed
// as an argument, which is locked already.
type memory struct {
	*directory
	clock     keys.Clock
	pool      *slab.Pool
	lists     *keys.ListMemory
	evenShare int    // words that any partition may use, regardless of the others
	tight     signal // to the sweep: a partition below its share needs room

	noStore  bool // keys.Keyspace.NoStore
	maxBytes int64
	log      *slog.Logger
	// When it was last logged that keys are refused, and that keys are forgotten.
	refusalLogged, lossLogged atomic.Int64
}

func (m *memory) init(d *directory, clock keys.Clock, opt *Options) {
	m.directory, m.clock = d, clock
	m.pool = slab.New(opt.MaxMemory)
	m.lists = keys.NewListMemory(m.pool)
	m.evenShare = int(m.pool.CommonWords()) / len(m.parts)
	m.tight = newSignal()
	m.noStore, m.maxBytes, m.log = opt.Store == nil, opt.MaxMemory, opt.Logger
}

// admitKey returns why a new key of a namespace can't be kept in memory, or nil if it can. The
// partition is locked.
func (g *guarded) admitKey(space, words int, sec uint32) error {
	m := g.memory
	if !g.ensureQuota(space, sec) {
		m.warnFull(&m.refusalLogged,
			"a namespace has its most keys in memory: new ones are refused",
			"namespace", m.namespaces.At(space).Name, "max_keys", m.namespaces.At(space).MaxKeys)
		return twotier.ErrMaxKeys
	}
	if !g.ensureRoom(words, sec) {
		m.warnFull(&m.refusalLogged, "the memory for counts is full of what the store does not "+
			"have, or was used just now: new keys are refused, or served by the store",
			"max_bytes", m.maxBytes)
		return twotier.ErrFull
	}
	return nil
}

// ensureQuota reports whether a namespace may have one more key, after evicting another of its keys
// if necessary. Other partitions are only tried with TryLock: to wait for one while holding another
// could deadlock.
func (g *guarded) ensureQuota(space int, sec uint32) bool {
	m, sp := g.memory, g.memory.namespaces.At(space)
	if sp.MaxKeys == 0 || sp.Keys.Load() < sp.MaxKeys || g.evictOne(sec, space) {
		return true
	}
	for range quotaTries {
		o := &m.parts[rand.IntN(len(m.parts))]
		if !o.mu.TryLock() {
			continue
		}
		given := o.evictOne(sec, space)
		o.mu.Unlock()
		if given {
			return true
		}
	}
	return false
}

// ensureRoom reports whether a block of this many words may be allocated for a new key, after
// evicting others if memory is used up. A partition below its share need not evict: the largest
// partition gives something up instead.
func (g *guarded) ensureRoom(words int, sec uint32) bool {
	m, full := g.memory, g.keys.Arena.Full()
	if !full && m.pool.Fits(arena.ChunkWords) {
		return true
	}
	return g.mayUseReserve() || g.makeRoom(words, sec) ||
		!full && (m.pool.Fits(arena.MinChunkWords) || g.keys.NoStore && m.useReserve())
}

// mayUseReserve reports whether a partition may take something from the reserve, because it is
// below its share.
func (g *guarded) mayUseReserve() bool {
	if g.keys.Arena.Full() || g.keys.Words() >= g.memory.evenShare {
		return false
	}
	return g.memory.useReserve()
}

// useReserve reports whether something may be taken from the reserve. The largest partition then
// gives something up.
func (m *memory) useReserve() bool {
	m.tight.send()
	return m.pool.FitsReserve(arena.MinChunkWords)
}

// warnFull logs that memory is full, unless that was logged lately.
func (m *memory) warnFull(at *atomic.Int64, text string, args ...any) {
	if isLogDue(at, fullPause) {
		m.log.Warn(text, args...)
	}
}

// maxEvictions bounds how many entries one new key may push out. More than one is needed only if
// blocks differ in size.
const maxEvictions = 32

// makeRoom evicts entries until there is a free block of this many words. If no entry can be
// evicted, a free block is enough only while memory is within its budget.
func (g *guarded) makeRoom(words int, sec uint32) bool {
	// Evict at least one entry, if there is any, even if there is a free block already: the new
	// key's counters need the blocks of an evicted key's counters. Without an eviction they take
	// new chunks, so each round that frees the pending buckets of some keys would admit as many
	// new ones, and memory would grow for as long as no key is idle.
	for range maxEvictions {
		if !g.evictOne(sec, keys.AnySpace) {
			return g.keys.Arena.Fits(words) && g.memory.pool.FitsReserve(0)
		}
		if g.keys.Arena.Fits(words) {
			return true
		}
	}
	return false
}

// makeRoomBeside is makeRoom, and keeps an entry.
func (g *guarded) makeRoomBeside(at arena.Ref, words int, sec uint32) bool {
	if g.keys.NoStore {
		defer g.keys.Unpin(g.keys.Pin(at))
	}
	return g.makeRoom(words, sec)
}

// evictOne is [keys.Keyspace.EvictOne], but evicts nothing while keepsAll is true.
func (g *guarded) evictOne(sec uint32, space int) bool {
	if g.keepsAll() || !g.keys.EvictOne(sec, space) {
		return false
	}
	if g.keys.NoStore && space == keys.AnySpace {
		g.memory.warnFull(&g.memory.lossLogged, "memory is full: the keys that have counted "+
			"least are forgotten; --max-memory is too little, or there is a flood of keys",
			"max_bytes", g.memory.maxBytes)
	}
	return true
}

// pinned reports whether a restoration or a handoff is going through the entries. None may be
// dropped or moved meanwhile.
func (g *guarded) pinned() bool { return g.restoration.active() || g.ownership.isSealed() }

// keepsAll reports whether no entry may be evicted or moved now: a restoration or a handoff is
// going through them, or a round has failed, and a restoration may need their counts.
func (g *guarded) keepsAll() bool {
	return g.pinned() || g.outbox.Flight != nil && g.outbox.Retry.Failing()
}

// rebuild moves all entries into a new arena if most of the old one is unused. It does nothing
// while anything refers to entries.
func (g *guarded) rebuild() {
	if g.pinned() || g.outbox.Flight != nil || !g.keys.Arena.Sparse() {
		return
	}
	moved := g.keys.Compact()
	g.dirty.Move(moved)
	for i, r := range g.parked.Refs {
		g.parked.Refs[i] = moved[r]
	}
}

// budget lets the parts of a partition ask whether memory may hold more. Its methods are called
// with the partition locked, and may evict other entries of the partition to make room.
type budget interface {
	// admitKey returns why a new key of a namespace can't be kept in memory, or nil if it can.
	// words is the size of its entry; sec is the present.
	admitKey(space, words int, sec uint32) error
	// ensureRoom reports whether a block of this many words may be allocated for a new key.
	ensureRoom(words int, sec uint32) bool
	// makeRoomForSynced makes room, if memory is used up, for the synced counts of one more key.
	// They are kept in memory in any case.
	makeRoomForSynced(sec uint32)
}

// A partition is the budget of its own parts.
var _ budget = (*guarded)(nil)

func (g *guarded) makeRoomForSynced(sec uint32) {
	if !g.memory.pool.Fits(arena.MinChunkWords) && !g.mayUseReserve() {
		g.evictOne(sec, keys.AnySpace)
	}
}
