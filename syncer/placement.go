package syncer

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// DefaultPartitions is the number of partitions of a cluster unless it is configured: a prime well
// above the number of nodes.
const DefaultPartitions = 1021

// Placement maps a key to its partition. It must be the same on all nodes of a cluster for as long
// as its data lives.
type Placement struct {
	// Partitions is the number of partitions.
	Partitions int
	// Seed changes the mapping; whoever knows it can choose keys that fall into one partition.
	Seed uint64
}

// Of returns the partition of a key: xxHash64 of the key and, unless it is the default one, of its
// namespace.
func (p Placement) Of(ns, key []byte) int {
	h := xxhash.Sum64(key) ^ p.Seed
	if !isDefault(ns) {
		h += bits.RotateLeft64(xxhash.Sum64(ns), 31)
	}
	// The finalizer of MurmurHash3 spreads the seed and the namespace over the high bits, which the
	// multiplication uses.
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	hi, _ := bits.Mul64(h, uint64(p.Partitions))
	return int(hi)
}

// DefaultNamespace is the namespace of a key that names none.
const DefaultNamespace = "default"

func isDefault(ns []byte) bool { return len(ns) == 0 || string(ns) == DefaultNamespace }
