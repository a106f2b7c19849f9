package ring

import (
	"encoding/binary"
	"sync"
)

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
