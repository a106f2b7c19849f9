package main

import (
	"fmt"
	"hash/fnv"

	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// agreement returns what the members of the cluster must have in common.
func (s *server) agreement() ring.Agreement {
	return ring.Agreement{
		Partitions: s.store.place.Partitions, Seed: s.store.place.Seed, Data: dataOf(s.store.place),
	}
}

// dataOf returns a digest of what all nodes must agree on besides partitions and seed: which
// namespaces have hash tags.
func dataOf(place syncer.Placement) uint64 {
	if place.HashTags == nil {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "hash tags: %s\n", place.HashTags)
	return h.Sum64() >> 11 // 53 bits, which a JSON number holds exactly
}
