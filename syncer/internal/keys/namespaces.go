package keys

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"twotier.dev/twotier"
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
