package ring

import (
	"encoding/binary"
	"sync"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Placements caches placements for several rings in one process that see the same members, so that
// each placement is computed once. The zero value is an empty cache. It is safe for concurrent use.
type Placements struct {
	mu    sync.Mutex
	known map[string][]uint16
}

// maxPlacements is the number of placements at which the cache is emptied.
const maxPlacements = 1 << 13

// placed is a member as the placement library sees it, with its index in some list.
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

// of returns the index of the owner of each partition. The caller must not change the result. A nil
// cache computes the placement every time.
func (c *Placements) of(owners []placed, partitions int, seed uint64) []uint16 {
	if c == nil {
		return place(owners, partitions, seed)
	}
	key := placementKey(owners, partitions, seed)
	c.mu.Lock()
	found, ok := c.known[key]
	c.mu.Unlock()
	if !ok {
		found = place(owners, partitions, seed)
		c.put(key, found)
	}
	return found
}

func (c *Placements) put(key string, placement []uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// place computes the index of the owner of each partition.
func place(owners []placed, partitions int, seed uint64) []uint16 {
	placement := make([]uint16, partitions)
	if len(owners) == 1 { // placement is expensive, and a lone node is common
		return placement
	}
	members := make([]consistent.Member, len(owners))
	for i, o := range owners {
		members[i] = placed{o.id, i}
	}
	c := consistent.New(members, consistent.Config{
		Hasher: hasher{seed}, PartitionCount: partitions, ReplicationFactor: virtualNodes,
		Load: maxLoad,
	})
	for p := range placement {
		placement[p] = uint16(c.GetPartitionOwner(p).(placed).at)
	}
	return placement
}
