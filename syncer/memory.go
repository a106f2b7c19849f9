package syncer

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/internal/slab"
)

// quotaTries is how many other partitions are tried for a key of a namespace that may be evicted.
const quotaTries = 16

// fullPause is how long further refusals go unlogged after one was logged.
const fullPause = time.Minute

// memory keeps the keys of all partitions within the budget. It decides whether there is room for
// another key, drops what has left every window, and makes the largest partition give up room for
// small ones. Its methods lock the partitions that they look at, except for one that is passed to
// them: that one is locked already.
type memory struct {
	parts  []partition
	spaces []*space
	clock  clock
	pool   *slab.Pool
	share  int           // words that any partition may use, regardless of the others
	tight  chan struct{} // tells the sweep that a partition below its share needs room

	maxBytes   int64
	log        *slog.Logger
	fullLogged atomic.Int64
}

// clock is a counter's source of time.
type clock struct {
	now    func() int64 // in unix milliseconds
	opened int64        // the zero point of an entry's last use
}

func (m *memory) init(c *Counter) {
	m.parts, m.spaces, m.clock = c.parts, c.namespaces.all, c.clock
	m.pool = slab.New(c.opt.MaxMemory)
	m.share = int(m.pool.Common()) / len(m.parts)
	m.tight = make(chan struct{}, 1)
	m.maxBytes, m.log = c.opt.MaxMemory, c.opt.Logger
}

// seconds converts a time to the scale of an entry's last use; second returns the present on it.
func (c clock) seconds(now int64) uint32 { return uint32((now-c.opened)/1000) & low24 }
func (c clock) second() uint32           { return c.seconds(c.now()) }

// admitKey returns why a new key of a namespace can't be kept in memory, or nil if it can. The
// partition is locked.
func (m *memory) admitKey(g *guarded, space, words int, sec uint32) error {
	if !m.withinQuota(g, space, sec) {
		m.warnFull("a namespace has its most keys in memory: new ones are refused",
			"namespace", m.spaces[space].name, "max_keys", m.spaces[space].maxKeys)
		return ErrMaxKeys
	}
	if !m.roomFor(g, words, sec) {
		m.warnFull("the memory for counts is full of what the store does not have, or was used "+
			"just now: new keys are refused, or served by the store", "max_bytes", m.maxBytes)
		return ErrFull
	}
	return nil
}

// withinQuota reports whether a namespace may have one more key, after evicting another of its keys
// if necessary. Other partitions are only tried with TryLock: to wait for one while holding another
// could deadlock.
func (m *memory) withinQuota(g *guarded, space int, sec uint32) bool {
	sp := m.spaces[space]
	if sp.maxKeys == 0 || sp.keys.Load() < sp.maxKeys || g.evictOne(sec, space) {
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

// roomFor reports whether a block of this many words may be allocated for a new key, after evicting
// others if memory is used up. A partition below its share need not evict: the largest partition is
// made to give something up instead.
func (m *memory) roomFor(g *guarded, words int, sec uint32) bool {
	full := g.keys.arena.Full()
	if !full && m.pool.Fits(arena.ChunkWords) {
		return true
	}
	small := !full && g.keys.words() < m.share
	if small {
		m.askForRoom()
		if m.pool.FitsReserve(arena.MinChunkWords) {
			return true
		}
	}
	return g.makeRoom(words, sec) || !full && m.pool.Fits(arena.MinChunkWords)
}

// askForRoom tells the sweep that the reserve is being used.
func (m *memory) askForRoom() {
	select {
	case m.tight <- struct{}{}:
	default:
	}
}

func (m *memory) warnFull(text string, args ...any) {
	now, last := time.Now().UnixNano(), m.fullLogged.Load()
	if now-last > int64(fullPause) && m.fullLogged.CompareAndSwap(last, now) {
		m.log.Warn(text, args...)
	}
}
