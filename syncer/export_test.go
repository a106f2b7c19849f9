package syncer

import "time"

// Held is what memory holds of a key.
type Held struct {
	Found, Warm, Clean bool
	// Synced and Pending are the counts by level and index of bucket.
	Synced, Pending map[[2]int64]int64
}

// Held returns what memory holds of a key, at one moment.
func (c *Counter) Held(ns, key []byte) (h Held) {
	var t target
	c.locate(&t, &Check{NS: ns, Key: key})
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	r := t.p.find(t.hash, t.ns, key)
	if r == 0 {
		return h
	}
	e := t.p.arena.entry(r)
	h = Held{Found: true, Warm: t.p.warm(e), Clean: evictable(e), Synced: map[[2]int64]int64{}, Pending: map[[2]int64]int64{}}
	t.sp.ladder.Each(t.p.syncedOf(e), func(level int, idx, n int64) bool {
		h.Synced[[2]int64{int64(level), idx}] += n
		return true
	})
	t.sp.ladder.Each(t.p.pendingOf(e), func(level int, idx, n int64) bool {
		h.Pending[[2]int64{int64(level), idx}] += n
		return true
	})
	return h
}

// PendingFound counts the pending buckets by looking at every key, and returns the sum that is kept along the way too.
func (c *Counter) PendingFound() (found, kept int64) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		kept += p.pendingBuckets
		for _, s := range p.table.slots {
			if s == 0 {
				continue
			}
			e := p.arena.entry(ref(s >> 32))
			c.spaces[e.space()].ladder.Each(p.pendingOf(e), func(int, int64, int64) bool {
				found++
				return true
			})
		}
		p.mu.Unlock()
	}
	return found, kept
}

// ReserveUsed is how many bytes are in use of the memory that is kept for small partitions.
func (c *Counter) ReserveUsed() int { return max(0, 8*c.pool.excess()) }

// HugePages is whether counters have their memory mapped.
const HugePages = hugePages

// NewPool returns a pool of a counter that is not there.
func NewPool() *pool { return newPool(1 << 40) }

func (p *pool) Take(n int) []uint64            { return p.take(n) }
func (p *pool) TakeAbout(some, n int) []uint64 { return p.takeAbout(some, n) }
func (p *pool) Give(b []uint64)                { p.give(b) }
func (p *pool) Idle() int64                    { return p.idleBytes() }

// Arena is an arena by itself.
type Arena = arena

// NewArena returns an arena without keys.
func NewArena() *Arena { return &arena{pool: newPool(1 << 40)} }

// Ref tells a block of an arena.
type Ref = ref

func (a *arena) Alloc(n int) Ref             { return a.alloc(n) }
func (a *arena) Words(r Ref, n int) []uint64 { return a.words(r, n) }
func (a *arena) Release(r Ref, n int)        { a.release(r, n) }

func (a *arena) Vacate(words int)   { a.vacate(words) }
func (a *arena) Vacates(r Ref) bool { return a.vacates(r) }
func (a *arena) Vacated() int       { return a.vacated }

// Account is what an arena has, what of it is free, and what its pool thinks that is in use, in words.
func (a *arena) Account() (total, unused, taken int) {
	return a.total, a.unused, int(a.pool.used.Load())
}

// Room returns how many keys wait for the store and how many operations have, or wait for, room, over all lanes.
func (c *Counter) Room() (owed, granted, waiting int64) {
	for _, l := range c.lanes {
		owed += l.room.owed.Load()
		granted += l.room.granted.Load()
		waiting += l.room.waiting[knownKey].Load() + l.room.waiting[newKey].Load()
	}
	return owed, granted, waiting
}

// NewPace returns a pace that begins with a guess.
func NewPace(perSecond float64) *pace {
	p := newPace(perSecond)
	return &p
}

func (p *pace) Note(keys int, took time.Duration) { p.note(keys, took) }
func (p *pace) Within(d time.Duration) int64      { return p.within(d) }
