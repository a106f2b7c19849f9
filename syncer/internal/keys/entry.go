package keys

import (
	"unsafe"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// Entry is the block of one key in its partition's arena:
//
//	word 0    last use in seconds since open (24 bits), generation of the load (24), flags (8),
//	          namespace (8)
//	word 1    synced counter (32), pending counter (32)
//	word 2    largest known count of the key that a companion belongs to (44), whether a limit
//	          needs it to be exact (1), whether it has to be read before the store may get
//	          its content (1), whether it has values in place of counts (1), whether the
//	          store has the key in another form (1), length of namespace (7) and key (9)
//	word 3-   the bytes of namespace and key
//	rest      a pending counter with room for two cells
//
// Pending counts start out in the entry itself. A flush empties them, so most adds touch no other
// memory and need no block. Counts that don't fit move to a separate block until the next flush.
//
// An entry doesn't move while it is in use elsewhere, so its ref identifies it.
type Entry []uint64

const (
	entryHead    = 3
	inlineWords  = 4
	rewriteBit   = 1 << 47
	valuesBit    = 1 << 46
	needsReadBit = 1 << 45
	exactBit     = 1 << 44
	low44        = 1<<44 - 1
	low24        = 1<<24 - 1
	low32        = 1<<32 - 1
)

// The flags of an entry.
const (
	// FlagDirty: the entry is on the dirty list.
	FlagDirty = 1 << iota
	// FlagCold: the store's counts of the key are unknown.
	FlagCold
	// FlagBusy: the entry is part of the round in flight.
	FlagBusy
	// FlagReset: the next round deletes the key from the store before anything else.
	FlagReset
	// FlagParked: the store refused the key, which waits for a retry.
	FlagParked
	// FlagRenew: the key, and so its time to live, was gone from the store before the last flush.
	FlagRenew
	// FlagShared: several counters count the key, and meet in the store at every flush.
	FlagShared
	// FlagLimit: the key was at a limit when an Acquire last decided about it.
	FlagLimit
)

// Words returns the size of the entry of a key, in words.
func Words(ns, key []byte) int { return entryHead + (len(ns)+len(key)+7)/8 + inlineWords }

// entryAt returns the entry at a place in an arena.
func entryAt(a *arena.Arena, r arena.Ref) Entry {
	b := Entry(a.Tail(r))
	n := b.inlineAt() + inlineWords
	return b[:n:n]
}

// inlineAt returns the index of the first word of the inline pending counter.
func (e Entry) inlineAt() int {
	ns, key := e.nameLens()
	return entryHead + (ns+key+7)/8
}

// inline returns the pending counter within the entry.
func (e Entry) inline() leaparray.Counter { return leaparray.Counter(e[e.inlineAt():]) }

// HasPending reports whether there are pending buckets, even if they are zero.
func (e Entry) HasPending() bool { return e.pendingRef() != 0 || e[e.inlineAt()] != 0 }

func (e Entry) nameLens() (ns, key int) {
	w := e[2] >> 48
	return int(w >> 9), int(w & 0x1ff)
}

func (e Entry) setName(ns, key []byte) {
	e[2] = e[2]&(1<<48-1) | uint64(len(ns)<<9|len(key))<<48
	b := e.nameBytes(len(ns) + len(key))
	copy(b, ns)
	copy(b[len(ns):], key)
}

// nameBytes returns n bytes from the words after the head.
func (e Entry) nameBytes(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(e[entryHead:]))), n)
}

// Name returns the namespace, empty for the default one, and the key, as views into the entry.
func (e Entry) Name() (ns, key []byte) {
	n, k := e.nameLens()
	b := e.nameBytes(n + k)
	return b[:n:n], b[n:]
}

// IsOf reports whether the entry is of this key.
func (e Entry) IsOf(ns, key []byte) bool {
	n, k := e.nameLens()
	if n != len(ns) || k != len(key) {
		return false
	}
	b := e.nameBytes(n + k)
	return string(b[n:]) == string(key) && string(b[:n]) == string(ns)
}

// SetLastUsed records a use, see [Clock.Seconds].
func (e Entry) SetLastUsed(sec uint32) { e[0] = e[0]&^low24 | uint64(sec)&low24 }

// IdleSeconds returns how many seconds before sec the entry was last used. It is 0 if the last use
// is later than sec: the caller read the time before another operation that was faster.
func (e Entry) IdleSeconds(sec uint32) uint32 {
	if idle := (sec - uint32(e[0])) & low24; idle <= low24/2 {
		return idle
	}
	return 0
}

// Gen returns the generation of the load, which has 24 bits.
func (e Entry) Gen() uint32 { return uint32(e[0] >> 24 & low24) }

// SetGen sets the generation of the load.
func (e Entry) SetGen(gen uint32) { e[0] = e[0]&^(low24<<24) | uint64(gen&low24)<<24 }

// HasFlag reports whether the entry has any of these flags.
func (e Entry) HasFlag(flags uint64) bool { return e[0]>>48&flags != 0 }

// SetFlags sets flags.
func (e Entry) SetFlags(flags uint64) { e[0] |= flags << 48 }

// ClearFlags clears flags.
func (e Entry) ClearFlags(flags uint64) { e[0] &^= flags << 48 }

// NeedsRound reports whether an entry has anything to flush or to read again.
func (e Entry) NeedsRound() bool {
	return e.HasPending() || e.HasFlag(FlagReset|FlagRenew|FlagShared)
}

// IsClean reports whether the store has all counts of an entry.
func (e Entry) IsClean() bool {
	return !e.isInUse() && !e.HasPending()
}

// isInUse reports whether something refers to the entry.
func (e Entry) isInUse() bool {
	return e.HasFlag(FlagDirty | FlagBusy | FlagReset | FlagParked | FlagShared)
}

// isCompanion reports whether the entry is of a companion of a key.
func (e Entry) isCompanion() bool {
	ns, _ := e.Name()
	return twotier.Companion(ns) != ""
}

// IsValues reports whether the entry holds different values.
func (e Entry) IsValues() bool { return e[2]&valuesBit != 0 }

func (e Entry) accompanied() uint64 { return e[2] & low44 }

// setAccompanied raises the largest known count of the key that a companion belongs to.
func (e Entry) setAccompanied(n float64) {
	if n > float64(e.accompanied()) {
		e[2] = e[2]&^low44 | uint64(min(n, low44))
	}
}

// IsExact reports whether the newest events keep their millisecond, because a limit needs it.
func (e Entry) IsExact() bool { return e[2]&exactBit != 0 }

// SetExact makes a key exact from now on.
func (e Entry) SetExact() { e[2] |= exactBit }

// NeedsRewrite reports whether the store may have the key in another form than memory: the key has
// folded in memory since it was last written, or the store has a log of it.
func (e Entry) NeedsRewrite() bool { return e[2]&rewriteBit != 0 }

// SetRewrite sets or clears the mark that NeedsRewrite reads.
func (e Entry) SetRewrite(yes bool) { e.setBit(rewriteBit, yes) }

// NeedsRead reports whether the store may have something of the key that memory can't tell: what
// was added in quiet rounds, or buckets from which more was taken back than they had.
func (e Entry) NeedsRead() bool { return e[2]&needsReadBit != 0 }

// SetNeedsRead sets or clears the mark that NeedsRead reads.
func (e Entry) SetNeedsRead(yes bool) { e.setBit(needsReadBit, yes) }

func (e Entry) setBit(bit uint64, yes bool) {
	if e[2] &^= bit; yes {
		e[2] |= bit
	}
}

func (e Entry) namespaceIndex() int     { return int(e[0] >> 56) }
func (e Entry) setNamespaceIndex(s int) { e[0] |= uint64(s) << 56 }

// HasSynced reports whether the store has known counts of the key.
func (e Entry) HasSynced() bool { return e.syncedRef() != 0 }

func (e Entry) syncedRef() arena.Ref      { return arena.Ref(e[1] & low32) }
func (e Entry) setSyncedRef(r arena.Ref)  { e[1] = e[1]&^low32 | uint64(r) }
func (e Entry) pendingRef() arena.Ref     { return arena.Ref(e[1] >> 32) }
func (e Entry) setPendingRef(r arena.Ref) { e[1] = e[1]&low32 | uint64(r)<<32 }

// counterAlloc adapts an arena to leaparray.Allocator. It remembers the places of its blocks.
type counterAlloc struct {
	arena  *arena.Arena
	blocks []block
	buffer [4]block
}

// block is a counter's block: its first word, and its place in the arena.
type block struct {
	first *uint64
	at    arena.Ref
}

// Alloc implements leaparray.Allocator. The upper half of the first word holds the block's size,
// which is needed to release it.
func (c *counterAlloc) Alloc(words int) leaparray.Counter {
	at := c.arena.Alloc(words)
	b := c.arena.Words(at, words)
	b[0] = uint64(words) << 32
	c.blocks = append(c.blocks, block{&b[0], at})
	return leaparray.Counter(b)
}

// Release implements leaparray.Allocator. A counter without a block is an entry's inline counter.
func (c *counterAlloc) Release(counter leaparray.Counter) {
	if len(counter) == 0 {
		return
	}
	if at := c.refOf(counter); at != 0 {
		releaseCounter(c.arena, at)
		return
	}
	counter[0], counter[1] = 0, 0
}

// refOf returns the place of a counter's block, or 0 if it has none.
func (c *counterAlloc) refOf(counter leaparray.Counter) arena.Ref {
	for i := len(c.blocks) - 1; i >= 0; i-- {
		if c.blocks[i].first == &counter[0] {
			return c.blocks[i].at
		}
	}
	return 0
}

// counterAt returns the counter at r, nil for 0.
func counterAt(a *arena.Arena, r arena.Ref) leaparray.Counter {
	if r == 0 {
		return nil
	}
	b := a.Tail(r)
	n := int(b[0] >> 32)
	return leaparray.Counter(b[:n:n])
}

func releaseCounter(a *arena.Arena, r arena.Ref) {
	if r != 0 {
		a.Release(r, int(a.Tail(r)[0]>>32))
	}
}

// copyCounter copies a counter to an arena, possibly the same one.
func copyCounter(to, from *arena.Arena, r arena.Ref) arena.Ref {
	if r == 0 {
		return 0
	}
	c := counterAt(from, r)
	at := to.Alloc(len(c))
	copy(to.Words(at, len(c)), c)
	return at
}

// evacuateCounter moves a counter out of a chunk that is about to be released, and returns its new
// place.
func evacuateCounter(a *arena.Arena, r arena.Ref) arena.Ref {
	if !a.MustMove(r) {
		return r
	}
	to := copyCounter(a, a, r)
	releaseCounter(a, r)
	return to
}

// A flush reads entries and counters that have not been used for a while. With more keys than fit
// the processor's caches, walking from one to the next misses the cache at each step, which can
// take longer than everything else. Loads that don't depend on each other overlap, so the next
// entries are prefetched.

// PrefetchAtOnce is how many entries are prefetched at a time. With their counters they take up
// much less than a core's own cache.
const PrefetchAtOnce = 512

// Prefetch reads a word of each entry, and then of the counters it refers to. The sum is only kept
// so that the compiler doesn't remove the reads. The partition is locked.
func (s *Keyspace) Prefetch(refs []arena.Ref) {
	sum := uint64(0)
	for _, r := range refs {
		if r != 0 {
			sum += s.Arena.Tail(r)[2]
		}
	}
	for _, r := range refs {
		if r == 0 {
			continue
		}
		e := Entry(s.Arena.Tail(r))
		sum += e[e.inlineAt()]
		if at := e.syncedRef(); at != 0 {
			sum += s.Arena.Tail(at)[0]
		}
	}
	s.touched = sum
}

// Place is where a key may be: its keyspace and its hash.
type Place struct {
	Keyspace *Keyspace
	Hash     uint32
	ref      arena.Ref // the first entry with this hash
}

// PrefetchPlaces reads the slot of each place, then its first entry, and then the counters of that
// entry, the synced one only if synced is set. The partitions are locked. The caller keeps the sum,
// so that the compiler doesn't remove the reads. Everything in the loops is inlined: calls between
// the reads would leave the processor fewer of them to overlap.
func PrefetchPlaces(places []Place, synced bool) (sum uint64) {
	for i := range places {
		p := &places[i]
		sum += p.Keyspace.table.Prefetch(p.Hash)
	}
	for i := range places {
		p := &places[i]
		if p.ref = p.Keyspace.table.Find(p.Hash, func(arena.Ref) bool { return true }); p.ref != 0 {
			sum += p.Keyspace.Arena.Tail(p.ref)[2]
		}
	}
	for i := range places {
		p := &places[i]
		if p.ref == 0 {
			continue
		}
		e := Entry(p.Keyspace.Arena.Tail(p.ref))
		sum += e[e.inlineAt()]
		if at := e.syncedRef(); synced && at != 0 {
			sum += p.Keyspace.Arena.Tail(at)[0]
		}
	}
	return sum
}
