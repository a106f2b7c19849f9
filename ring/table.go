package ring

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Protocol is the version of what nodes say to each other, and of how they place partitions. Nodes
// of different versions form no cluster.
const Protocol = 2

// The parameters of placement. With 200 virtual nodes and a load of at most 1.25 times the mean, a
// change moves little more than it must: see TestMovement.
const (
	virtualNodes = 200
	maxLoad      = 1.25
)

// MaxMembers is the largest number of members that a table can have.
const MaxMembers = 1 << 12

// Member is one process that is part of the cluster.
type Member struct {
	// ID is what the node is called in its configuration; a restarted node keeps it.
	ID string
	// Name is the process: no two are ever the same.
	Name string
	// Address is where it serves HTTP, as host:port.
	Address string
	// Born is when the process started, in unix milliseconds.
	Born int64
	// Draining is set once it is about to leave: it owns nothing.
	Draining bool
	// Starting is set until it is known that no other process has its ID: it owns nothing yet.
	Starting bool
	// Tag is a short text that the node says about itself to all others, see Ring.SetTag.
	Tag string
	// Peer is where it takes messages of other nodes, as host:port, with https:// in front if it
	// asks for TLS. Empty means Address.
	Peer string
}

// PeerAddress is where a member takes messages of other nodes.
func (m *Member) PeerAddress() string { return cmp.Or(m.Peer, m.Address) }

// Table is one state of the cluster: its members, and the owner of every partition. It never
// changes.
type Table struct {
	members []Member
	owners  []uint16
	counts  []int
	self    int
	version uint64
}

// NewTable returns the table of these members, of which self is the name of one that looks at it.
// Members that are alive under the same ID are one: the younger, but not one that is only starting.
// It is a pure function of its arguments, but for their order.
func NewTable(members []Member, self string, partitions int, seed uint64) (*Table, error) {
	return newTable(members, self, partitions, seed, nil)
}

// newTable is NewTable beside the table before it, of as many partitions and the same seed: most
// changes are about members that own nothing, or about what a member says of itself, and leave the
// placement, which is nearly all that a table costs.
func newTable(members []Member, self string, partitions int, seed uint64,
	before *Table) (*Table, error) {
	if partitions < 1 {
		return nil, fmt.Errorf("ring: %d partitions, want at least 1", partitions)
	}
	t := &Table{members: unique(members), owners: make([]uint16, partitions), self: -1}
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
	if !t.placeLike(before) {
		t.place(seed)
	}
	return t, nil
}

// unique returns the youngest member of each ID, by ID. One that is starting is none beside one
// that is not.
func unique(members []Member) []Member {
	list := slices.Clone(members)
	slices.SortFunc(list, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), compare(a.Starting, b.Starting),
			cmp.Compare(b.Born, a.Born), cmp.Compare(b.Name, a.Name))
	})
	return slices.CompactFunc(list, func(a, b Member) bool { return a.ID == b.ID })
}

// compare puts false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// placed is a member as the placement knows it.
type placed struct {
	id string
	at int
}

func (p placed) String() string { return p.id }

// hasher is xxHash64 with a seed.
type hasher struct{ seed uint64 }

func (h hasher) Sum64(b []byte) uint64 {
	d := xxhash.NewWithSeed(h.seed)
	_, _ = d.Write(b) // never fails
	return d.Sum64()
}

// candidates returns the members that partitions are given to. If all are draining they own what
// they have until they are gone; one that is starting owns something only if there is nobody else.
func (t *Table) candidates() (owners []consistent.Member) {
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

// placeLike takes the placement over from a table in which the same IDs own something, on which
// alone it depends.
func (t *Table) placeLike(before *Table) bool {
	if before == nil {
		return false
	}
	owners, had := t.candidates(), before.candidates()
	if !slices.EqualFunc(owners, had, func(a, b consistent.Member) bool {
		return a.String() == b.String()
	}) {
		return false
	}
	now := make(map[uint16]uint16, len(owners)) // position by the one before
	for i := range owners {
		now[uint16(had[i].(placed).at)] = uint16(owners[i].(placed).at)
	}
	for p, at := range before.owners {
		t.owners[p] = now[at]
		t.counts[now[at]]++
	}
	return true
}

// place finds the owner of every partition.
func (t *Table) place(seed uint64) {
	owners := t.candidates()
	if len(owners) == 1 { // the placement is expensive, and a lone node is common
		only := owners[0].(placed).at
		for p := range t.owners {
			t.owners[p] = uint16(only)
		}
		t.counts[only] = len(t.owners)
		return
	}
	c := consistent.New(owners, consistent.Config{
		Hasher: hasher{seed}, PartitionCount: len(t.owners), ReplicationFactor: virtualNodes,
		Load: maxLoad,
	})
	for p := range t.owners {
		at := c.GetPartitionOwner(p).(placed).at
		t.owners[p] = uint16(at)
		t.counts[at]++
	}
}

// digest sums up all that decides about ownership. It fits a JSON number.
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

// Version is a digest of the members and the configuration: where it is the same, the owners are.
func (t *Table) Version() uint64 { return t.version }

// Partitions is the number of partitions.
func (t *Table) Partitions() int { return len(t.owners) }

// Owner returns the position among the members of a partition's owner.
func (t *Table) Owner(partition int) int { return int(t.owners[partition]) }

// Len is the number of members, draining ones included.
func (t *Table) Len() int { return len(t.members) }

// Member returns the member at a position. It must not be changed.
func (t *Table) Member(at int) *Member { return &t.members[at] }

// Self is the position of the node that looks at the table, -1 if another process has taken its ID.
func (t *Table) Self() int { return t.self }

// Mine reports whether the node that looks at the table owns a partition.
func (t *Table) Mine(partition int) bool { return int(t.owners[partition]) == t.self }

// Owned returns how many partitions the member at a position owns.
func (t *Table) Owned(at int) int { return t.counts[at] }

// Find returns the position of the member with this name, -1 if there is none.
func (t *Table) Find(name string) int {
	return slices.IndexFunc(t.members, func(m Member) bool { return m.Name == name })
}
