package twotier

import (
	"bytes"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// DefaultPartitions is the number of partitions of a cluster unless configured otherwise: a prime
// well above the number of nodes. Each flush of a partition has a fixed cost, so more partitions
// cost Redis more.
const DefaultPartitions = 257

// Placement maps a key to its partition. It must be the same on all nodes of a cluster for as long
// as its data lives.
type Placement struct {
	// Partitions is the number of partitions.
	Partitions int
	// Seed varies the mapping. Knowing it is enough to choose keys that fall into one partition,
	// and a client that writes the hash tag of a key can do so without it.
	Seed uint64
	// HashTags selects the namespaces in which all keys with the same hash tag are in one
	// partition. Default: none. It must not be changed once there are keys.
	HashTags HashTags
}

// Of returns the partition of a key: xxHash64 of the key and, unless it is the default one, of its
// namespace. A key with a hash tag has the same partition as its tag in the default namespace, and
// bans and leases have the partition of their key.
func (p Placement) Of(ns, key []byte) int {
	if len(ns) > 0 && Companion(ns) != "" {
		ns, key = Accompanied(ns, key)
	}
	if p.HashTags != nil {
		ns, key = p.HashTags.placedAs(ns, key)
	}
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

// HashTag returns the part of a key that decides its partition if hash tags are in use, as in Redis
// Cluster (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags):
// the bytes between the first '{' and the first '}' after it, or the whole key if there is no such
// pair or nothing in between. The result shares the memory of key.
func HashTag(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	tag := key[open+1:]
	if end := bytes.IndexByte(tag, '}'); end > 0 {
		return tag[:end]
	}
	return key
}

// HashTags determines, by namespace, whether keys are placed by their hash tags. A namespace that
// is not listed is like DefaultNamespace; if that is not listed either, hash tags are not used.
type HashTags map[string]bool

// In reports whether the keys of a namespace are placed by their hash tags.
func (t HashTags) In(ns []byte) bool {
	if on, listed := t[string(ns)]; listed {
		return on
	}
	return t[DefaultNamespace]
}

// placedAs returns the namespace and key that decide a key's partition: the original ones or, if
// the key has a hash tag that applies, the default namespace and the tag.
func (t HashTags) placedAs(ns, key []byte) (_, _ []byte) {
	if tag := HashTag(key); len(tag) < len(key) && t.In(ns) {
		return nil, tag
	}
	return ns, key
}

// String lists the namespaces with hash tags, such as "login, sms" or "no namespace" or, if
// unlisted namespaces have them, "every namespace but login". Two values that place all keys in the
// same way have the same text.
func (t HashTags) String() string {
	usual := t[DefaultNamespace]
	var others []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if t[name] != usual {
			others = append(others, name)
		}
	}
	list := strings.Join(others, ", ")
	switch {
	case usual && list == "":
		return "every namespace"
	case usual:
		return "every namespace but " + list
	case list == "":
		return "no namespace"
	}
	return list
}

// DefaultNamespace is the namespace of a key that names none.
const DefaultNamespace = "default"

func isDefault(ns []byte) bool { return len(ns) == 0 || string(ns) == DefaultNamespace }
