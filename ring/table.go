package ring

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Protocol is the version of the gossip messages and of placement. Nodes of different versions
// don't form a cluster.
const Protocol = 5

// The parameters of placement. The bound on the load balances nodes that have few partitions each.
// A lower one moves more when a member comes or goes: see TestMovement.
const (
	virtualNodes = 200
	maxLoad      = 1.1
)

// MaxMembers is the largest number of members a table can have.
const MaxMembers = 1 << 12

// Member is one process in the cluster.
type Member struct {
	// ID is the node's configured name. It survives restarts.
	ID string
	// Name identifies the process: no two processes ever share one.
	Name string
	// Address is where the node serves HTTP, as host:port.
	Address string
	// Born is when the process started, in unix milliseconds.
	Born int64
	// Draining is set when the node is about to leave. It then owns nothing.
	Draining bool
	// Starting is set until the node knows that no other process has its ID. It owns nothing yet.
	Starting bool
	// Tag is a short text that the node announces to all others, see [Ring.SetTag].
	Tag string
	// Zones is the version of the node's time-zone data; "" if it announces none.
	Zones string
	// Peer is where the node accepts messages from other nodes, as host:port, prefixed with
	// https:// if it expects TLS. Empty means Address.
	Peer string
}

// PeerAddress returns where the member accepts messages from other nodes.
func (m *Member) PeerAddress() string { return cmp.Or(m.Peer, m.Address) }

// Table is one immutable state of the cluster: its members, and the owner of every partition.
type Table struct {
	members []Member
	owners  []uint16
	counts  []int
	self    int
	version uint64
}

// NewTable returns the table of the given members as seen by the one whose Name is self. Of several
// members with the same ID it keeps the youngest, but prefers one that is not starting. The result
// does not depend on the order of members.
func NewTable(members []Member, self string, partitions int, seed uint64) (*Table, error) {
	return newTable(members, self, partitions, seed, nil)
}

// newTable is NewTable with a cache of placements, which may be nil. Placement is nearly all that a
// table costs, and most changes are about announcements, or about members that own nothing.
func newTable(
	members []Member, self string, partitions int, seed uint64, cache *Placements,
) (*Table, error) {
	if partitions < 1 {
		return nil, fmt.Errorf("ring: %d partitions, want at least 1", partitions)
	}
	t := &Table{members: youngestByID(members), owners: make([]uint16, partitions), self: -1}
	if n := len(t.members); n == 0 || n > MaxMembers {
		return nil, fmt.Errorf("ring: %d members, want 1 to %d", n, MaxMembers)
	}
	t.counts = make([]int, len(t.members))
	for i := range t.members {
		if t.members[i].Name == self {
			t.self = i
		}
	}
	t.version = digest(t.members, partitions, seed)
	t.place(seed, cache)
	return t, nil
}

// youngestByID returns the youngest member of each ID, ordered by ID. A member that is starting
// only counts if no other has its ID.
func youngestByID(members []Member) []Member {
	list := slices.Clone(members)
	slices.SortFunc(list, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), compareBools(a.Starting, b.Starting),
			cmp.Compare(b.Born, a.Born), cmp.Compare(b.Name, a.Name))
	})
	return slices.CompactFunc(list, func(a, b Member) bool { return a.ID == b.ID })
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// candidates returns the members that may own partitions. If all members are draining, they keep
// their partitions until they are gone. A member that is starting owns something only if there is
// no other.
func (t *Table) candidates() (owners []placed) {
	for _, fits := range []func(m *Member) bool{
		func(m *Member) bool { return !m.Draining && !m.Starting },
		func(m *Member) bool { return !m.Starting },
		func(*Member) bool { return true },
	} {
		for i := range t.members {
			if fits(&t.members[i]) {
				owners = append(owners, placed{t.members[i].ID, i})
			}
		}
		if len(owners) > 0 {
			break
		}
	}
	return owners
}

// place finds the owner of every partition.
func (t *Table) place(seed uint64, cache *Placements) {
	owners := t.candidates()
	for p, i := range cache.placementOf(owners, len(t.owners), seed) {
		at := owners[i].at
		t.owners[p] = uint16(at)
		t.counts[at]++
	}
}

// digest returns a hash of everything that ownership depends on. It fits in a JSON number.
func digest(members []Member, partitions int, seed uint64) uint64 {
	d := xxhash.NewWithSeed(seed)
	var b []byte
	b = binary.AppendUvarint(b, Protocol)
	b = binary.AppendUvarint(b, uint64(partitions))
	for i := range members {
		m := &members[i]
		b = append(append(append(append(b, m.ID...), 0), m.Name...), 0)
		if m.Draining {
			b = append(b, 1)
		}
		if m.Starting {
			b = append(b, 2)
		}
	}
	_, _ = d.Write(b) // never fails
	return d.Sum64() >> 16
}

// Version is a digest of the members and the configuration. Tables with the same version have the
// same owners.
func (t *Table) Version() uint64 { return t.version }

// Partitions returns the number of partitions.
func (t *Table) Partitions() int { return len(t.owners) }

// Owner returns the index of the member that owns a partition.
func (t *Table) Owner(partition int) int { return int(t.owners[partition]) }

// Len returns the number of members, including draining ones.
func (t *Table) Len() int { return len(t.members) }

// Member returns the member at an index. The caller must not change it.
func (t *Table) Member(at int) *Member { return &t.members[at] }

// Self returns the index of this node, or -1 if another process has taken over its ID.
func (t *Table) Self() int { return t.self }

// OwnedBySelf reports whether this node owns a partition.
func (t *Table) OwnedBySelf(partition int) bool { return int(t.owners[partition]) == t.self }

// OwnedCount returns how many partitions the member at an index owns.
func (t *Table) OwnedCount(at int) int { return t.counts[at] }

// Find returns the index of the member with this Name, or -1 if there is none.
func (t *Table) Find(name string) int {
	return slices.IndexFunc(t.members, func(m Member) bool { return m.Name == name })
}

// circle places partitions on owners with buraksezer/consistent. The library sorts the virtual
// nodes of all owners again for each added owner. So a circle is not rebuilt for each change of
// owners, which would cost each of a hundred nodes a quarter of a second.
type circle struct {
	owners     map[string]bool
	partitions int
	seed       uint64
	lib        *consistent.Consistent
}

// hasher is xxHash64 with a seed.
type hasher struct{ seed uint64 }

// Sum64 returns the hash of b.
func (h hasher) Sum64(b []byte) uint64 {
	d := xxhash.NewWithSeed(h.seed)
	_, _ = d.Write(b) // never fails
	return d.Sum64()
}

// newCircle returns a circle of two or more owners.
func newCircle(owners []placed, partitions int, seed uint64) *circle {
	c := &circle{owners: map[string]bool{}, partitions: partitions, seed: seed}
	members := make([]consistent.Member, len(owners))
	for i, o := range owners {
		members[i], c.owners[o.id] = o, true
	}
	c.lib = consistent.New(members, consistent.Config{Hasher: hasher{seed},
		PartitionCount: partitions, ReplicationFactor: virtualNodes, Load: maxLoad})
	return c
}

// change adds and removes owners so that the circle has exactly the given ones. It reports false,
// and changes nothing, if a new circle costs less.
func (c *circle) change(owners []placed, partitions int, seed uint64) bool {
	if partitions != c.partitions || seed != c.seed {
		return false
	}
	stay, gone := make(map[string]bool, len(owners)), []string(nil)
	var added []placed
	for _, o := range owners {
		if stay[o.id] = true; !c.owners[o.id] {
			added = append(added, o)
		}
	}
	for id := range c.owners {
		if !stay[id] {
			gone = append(gone, id)
		}
	}
	if len(added)+len(gone) > len(owners)/2 {
		return false
	}
	for _, o := range added {
		c.lib.Add(o)
	}
	for _, id := range gone {
		c.lib.Remove(id)
	}
	c.owners = stay
	return true
}

// placement returns the index of the owner of each partition.
func (c *circle) placement(owners []placed) []uint16 {
	index := make(map[string]uint16, len(owners))
	for i, o := range owners {
		index[o.id] = uint16(i)
	}
	placement := make([]uint16, c.partitions)
	for p := range placement {
		placement[p] = index[c.lib.GetPartitionOwner(p).String()]
	}
	return placement
}

// Placements caches placements, for one ring or for several in one process that see the same
// members: each placement is computed once, and usually from the one before. The zero value is an
// empty cache. It is safe for concurrent use.
type Placements struct {
	mu     sync.Mutex
	known  map[string][]uint16
	latest *circle
}

// maxPlacements is the number of placements at which the cache is emptied.
const maxPlacements = 1 << 10

// placed is a member in the form of the placement library, with its index in some list.
type placed struct {
	id string
	at int
}

func (p placed) String() string { return p.id }

// placementOf returns the index of the owner of each partition. The caller must not change the
// result. A nil cache computes each placement from scratch.
func (c *Placements) placementOf(owners []placed, partitions int, seed uint64) []uint16 {
	if len(owners) == 1 { // placement is expensive, and a lone node is common
		return make([]uint16, partitions)
	}
	if c == nil {
		return newCircle(owners, partitions, seed).placement(owners)
	}
	key := placementKey(owners, partitions, seed)
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.known[key]
	if !ok {
		found = c.compute(owners, partitions, seed)
		c.put(key, found)
	}
	return found
}

// compute computes a placement from the latest one, if they share most owners.
func (c *Placements) compute(owners []placed, partitions int, seed uint64) []uint16 {
	if c.latest == nil || !c.latest.change(owners, partitions, seed) {
		c.latest = newCircle(owners, partitions, seed)
	}
	return c.latest.placement(owners)
}

func (c *Placements) put(key string, placement []uint16) {
	if c.known == nil || len(c.known) >= maxPlacements {
		c.known = map[string][]uint16{}
	}
	c.known[key] = placement
}

// placementKey encodes everything that a placement depends on.
func placementKey(owners []placed, partitions int, seed uint64) string {
	b := binary.AppendUvarint(nil, seed)
	b = binary.AppendUvarint(b, uint64(partitions))
	for _, o := range owners {
		b = append(binary.AppendUvarint(b, uint64(len(o.id))), o.id...)
	}
	return string(b)
}
