package keys

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/internal/table"
	"twotier.dev/twotier/leaparray"
)

// MaxNamespaces is the largest number of namespaces: an entry has 8 bits for its namespace.
const MaxNamespaces = 256

// Namespace is a namespace in the form that partitions use.
type Namespace struct {
	Name   string
	Ladder *leaparray.Ladder
	// DenyCold refuses an Acquire if the store's counts of the key are unknown.
	DenyCold bool
	// Marks: each key marks a hold as settled.
	Marks bool
	// MostValues is how many different values of a key are kept before they are a sample.
	MostValues int
	// MaxKeys is the maximum number of keys in memory, 0 for no maximum; Keys is the current
	// number.
	MaxKeys int64
	Keys    atomic.Int64
	// Unlisted excludes the keys from lists.
	Unlisted bool
	// TTL is a key's time to live in the store, in milliseconds. It is a little more than twice the
	// longest span, so it is enough to set it with the first count in a bucket of the coarsest
	// level.
	TTL int64
}

// Namespaces holds the namespaces of a counter. Only their numbers of keys change.
type Namespaces struct {
	seed   maphash.Seed
	all    []*Namespace   // the first is the default one
	byName map[string]int // position in all
}

// NewNamespaces returns an empty list of namespaces.
func NewNamespaces() Namespaces {
	return Namespaces{seed: maphash.MakeSeed(), byName: map[string]int{}}
}

// Add adds a namespace. The first is the default one.
func (n *Namespaces) Add(sp *Namespace) {
	n.byName[sp.Name] = len(n.all)
	n.all = append(n.all, sp)
}

// Len returns the number of namespaces.
func (n *Namespaces) Len() int { return len(n.all) }

// At returns the namespace at a position.
func (n *Namespaces) At(i int) *Namespace { return n.all[i] }

// Index returns the position of a namespace, or the default one's if it is not configured.
func (n *Namespaces) Index(ns []byte) int {
	if IsDefault(ns) {
		return 0
	}
	if i, ok := n.byName[string(ns)]; ok {
		return i
	}
	switch companion := twotier.Companion(ns); companion {
	case "":
		return 0
	case twotier.ImportedNamespace, twotier.ValuesNamespace:
		of, _ := twotier.Accompanied(ns, nil)
		return n.Index(of)
	default:
		return n.byName[companion]
	}
}

// Of returns a namespace, or the default one if it is not configured.
func (n *Namespaces) Of(ns []byte) *Namespace { return n.all[n.Index(ns)] }

// Ladder returns the ladder of a namespace.
func (n *Namespaces) Ladder(ns []byte) *leaparray.Ladder { return n.Of(ns).Ladder }

// Hash returns the hash of a key in the table of its partition. ns is empty for the default
// namespace.
func (n *Namespaces) Hash(ns, key []byte) uint32 {
	h := maphash.Bytes(n.seed, key)
	if len(ns) > 0 {
		h = h*31 + maphash.Bytes(n.seed, ns)
	}
	return uint32(h>>32) ^ uint32(h)
}

// LongestSpan returns the longest span of any namespace that clients use, in milliseconds.
func (n *Namespaces) LongestSpan() (span int64) {
	for _, sp := range n.all {
		if !sp.Unlisted {
			span = max(span, sp.Ladder.Span())
		}
	}
	return span
}

// ListHash returns the hash under which the store lists a key.
func ListHash(ns, key []byte) uint32 {
	h := xxhash.Sum64(key)
	if !IsDefault(ns) {
		h += bits.RotateLeft64(xxhash.Sum64(ns), 31)
	}
	return uint32(h)
}

// IsDefault reports whether a name, which may be empty, is that of the default namespace.
func IsDefault(ns []byte) bool {
	return len(ns) == 0 || string(ns) == twotier.DefaultNamespace
}

// Keyspace holds the keys of a partition that are in memory. It is guarded by the partition's lock.
type Keyspace struct {
	// Names and Clock are shared by all partitions.
	Names *Namespaces
	Clock Clock
	table table.Table
	Arena arena.Arena // of entries and counters
	// dropped holds the hashes of the keys that were dropped last, and Drops counts all drops.
	dropped [dropsKept]uint32
	Drops   uint64
	// Stored holds keys that the store may have and memory does not. It is separate because
	// operations on keys in memory don't use it.
	Stored *StoredHashes

	changing change              // see beginChange
	puts     leaparray.ValueList // scratch of See

	evictSlot int // where the search for an entry to evict continues

	// NoStore: there is no store. All counts are pending, and an evicted key is forgotten, see
	// forgetOne. None is that ranks above MostForgotten, except by the bound of its namespace.
	NoStore       bool
	MostForgotten float64
	forgotten     int // keys that were forgotten ahead of need
	pins          []arena.Ref
	candidates    []candidate // scratch

	// PendingBuckets is the number of buckets with counts that the store has not acknowledged.
	PendingBuckets int64
	// Expired is the number of events that left every window before the store accepted them, and
	// Evicted the number of evicted keys.
	Expired, Evicted int64

	touched uint64 // see Prefetch
}

// Namespace returns an entry's namespace.
func (s *Keyspace) Namespace(e Entry) *Namespace { return s.Names.all[e.namespaceIndex()] }

// Ladder returns the ladder of an entry's namespace.
func (s *Keyspace) Ladder(e Entry) *leaparray.Ladder { return s.Namespace(e).Ladder }

// All iterates over the entries. None may be dropped or moved meanwhile.
func (s *Keyspace) All() iter.Seq2[arena.Ref, Entry] {
	return func(yield func(arena.Ref, Entry) bool) {
		for i := range s.table.Slots() {
			if at := s.table.RefAt(i); at != 0 && !yield(at, s.EntryAt(at)) {
				return
			}
		}
	}
}

// New returns an empty keyspace whose memory comes from a pool.
func New(pool *slab.Pool, names *Namespaces, clock Clock) Keyspace {
	return Keyspace{Names: names, Clock: clock, table: table.New(pool), Arena: arena.New(pool)}
}

// dropsKept is how many of its latest drops a partition remembers.
const dropsKept = 64

// MayHaveDropped reports whether a key with this hash may have been dropped after the first n
// drops.
func (s *Keyspace) MayHaveDropped(hash uint32, n uint64) bool {
	if s.Drops-n > dropsKept {
		return true
	}
	for ; n < s.Drops; n++ {
		if s.dropped[n%dropsKept] == hash {
			return true
		}
	}
	return false
}

// Find returns the place of a key's entry, or 0 if it has none.
func (s *Keyspace) Find(hash uint32, ns, key []byte) arena.Ref {
	return s.table.Find(hash, func(r arena.Ref) bool { return s.EntryAt(r).IsOf(ns, key) })
}

// Insert makes an entry for a key that has none. There must be room for it.
func (s *Keyspace) Insert(hash uint32, ns, key []byte, space int) arena.Ref {
	r := s.Arena.Alloc(Words(ns, key))
	e := Entry(s.Arena.Tail(r))
	if e.setName(ns, key); twotier.IsValues(ns) {
		e[2] |= valuesBit
	}
	if e.isCompanion() {
		e.SetExact()
	}
	e.setNamespaceIndex(space)
	s.table.Insert(hash, r)
	s.Names.all[space].Keys.Add(1)
	return r
}

// InsertCold makes an entry for a key that has none, regardless of the budget. The entry is cold:
// the store's counts of the key are unknown.
func (s *Keyspace) InsertCold(hash uint32, ns, key []byte) arena.Ref {
	i := s.Names.Index(ns)
	at := s.Insert(hash, ns, key, i)
	e := s.EntryAt(at)
	e.SetLastUsed(s.Clock.Second())
	e.SetFlags(FlagCold)
	return at
}

// Drop removes an entry from memory.
func (s *Keyspace) Drop(hash uint32, r arena.Ref) {
	s.dropped[s.Drops%dropsKept] = hash
	s.Drops++
	e := s.EntryAt(r)
	s.Stored.Add(ListHash(e.Name()))
	s.Names.all[e.namespaceIndex()].Keys.Add(-1)
	releaseCounter(&s.Arena, e.syncedRef())
	releaseCounter(&s.Arena, e.pendingRef())
	s.table.Remove(hash, r)
	s.Arena.Release(r, len(e))
}

// Clear drops all keys, including their pending counts.
func (s *Keyspace) Clear() {
	for _, e := range s.All() {
		s.Namespace(e).Keys.Add(-1)
	}
	s.table.Drop()
	s.Arena.Drop()
	s.PendingBuckets = 0
}

// EntryAt returns the entry at r.
func (s *Keyspace) EntryAt(r arena.Ref) Entry { return entryAt(&s.Arena, r) }

// Len returns the number of keys.
func (s *Keyspace) Len() int { return s.table.Len() }

// Slots returns the number of slots of the table.
func (s *Keyspace) Slots() int { return s.table.Slots() }

// EntryIn returns the entry in a slot, or nil if the slot is empty.
func (s *Keyspace) EntryIn(slot int) Entry {
	if at := s.table.RefAt(slot); at != 0 {
		return s.EntryAt(at)
	}
	return nil
}

// Shrink gives unused slots of the table back.
func (s *Keyspace) Shrink() { s.table.Shrink() }

// Words returns the memory of the keys in words.
func (s *Keyspace) Words() int { return s.Arena.TotalWords() + s.table.Slots() }

// Compact moves all entries into a new arena, shrinks the table to fit, and returns the new place
// of each entry.
func (s *Keyspace) Compact() (moved map[arena.Ref]arena.Ref) {
	moved = make(map[arena.Ref]arena.Ref, s.table.Len())
	old, oldTable := s.Arena, s.table
	s.Arena, s.table = old.NewEmpty(), oldTable.NewEmpty()
	for i := range oldTable.Slots() {
		at := oldTable.RefAt(i)
		if at == 0 {
			continue
		}
		e := entryAt(&old, at)
		to := s.Arena.Alloc(len(e))
		n := Entry(s.Arena.Words(to, len(e)))
		copy(n, e)
		n.setSyncedRef(copyCounter(&s.Arena, &old, e.syncedRef()))
		n.setPendingRef(copyCounter(&s.Arena, &old, e.pendingRef()))
		s.table.Insert(oldTable.HashAt(i), to)
		moved[at] = to
	}
	old.Drop()
	oldTable.Drop()
	return moved
}

// Clock is a counter's source of time.
type Clock struct {
	Now    func() int64 // in unix milliseconds
	Opened int64        // the zero point of an entry's last use
}

// Seconds converts a time to the scale of an entry's last use.
func (c Clock) Seconds(now int64) uint32 { return uint32((now-c.Opened)/1000) & low24 }

// Second returns the present on the scale of an entry's last use.
func (c Clock) Second() uint32 { return c.Seconds(c.Now()) }
