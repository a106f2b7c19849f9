package ring

import (
	"encoding/binary"
	"sync"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

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
