package syncer

import (
	"context"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"twotier.dev/twotier/leaparray"
)

// Lister is a Store that lists which keys it holds, so that a key that is not listed need not be
// read. A Store that wraps a Lister must be one too.
//
// A key is listed under its KeyHash, along with every round that restores it, or that sets its time
// to live and does not say that it is Listed. It stays listed for at least ListTTL. So of a key
// that is not listed, the store holds nothing that a window could still reach.
type Lister interface {
	// ListKeys reads on in the lists of some partitions, and sets the outcome of each. What it
	// reads includes all changes that the store had made when ListKeys was called.
	ListKeys(ctx context.Context, lists []*KeyList)
}

// KeyList is how far the list of a partition's keys was read, and what was found there.
type KeyList struct {
	Partition int
	// Epoch, Part and Offset say where to go on. They are zero for a list that was not read yet;
	// only the store can read them. Epoch is the epoch of the data at the time.
	Epoch, Part, Offset uint64
	// Told is what the store last said that it has of the partition; its epoch is 0 if it has not
	// said anything.
	Told Told

	// Err is why nothing was read. It wraps errors.ErrUnsupported if the list is not complete,
	// because some of the keys are older than the list.
	Err error
	// Lost is set if the store has lost something of what it Told. Then nothing else is set.
	Lost bool
	// Version, Quieted and LastChange are what the store had when it was read, as in a Round. A
	// store that has less later has lost data, and the end of the list may be another.
	Version, Quieted uint64
	LastChange       string
	// Begun says that this is the beginning of the list: what was read before is no longer part
	// of it.
	Begun bool
	// Hashes are the hashes that come next, in any order; some may be there more than once.
	Hashes []uint32
	// More says that the list goes on.
	More bool
}

// Told is what a store has said about its data of a partition, as in a [Round].
type Told struct {
	Epoch, Version, Quieted uint64
	LastChange              string
}

// KeyHash returns the hash under which a key is listed. ns is empty for the default namespace. Keys
// of one partition rarely have the same.
func KeyHash(ns, key []byte) uint32 {
	h := xxhash.Sum64(key)
	if !isDefault(ns) {
		h += bits.RotateLeft64(xxhash.Sum64(ns), 31)
	}
	return uint32(h)
}

// listings is how often a key that is counted all the time is listed in a span of its ladder. The
// buckets of the coarsest level are divided by their index into as many groups, and a key is listed
// with its first count in a group.
const listings = 4

// ListTTL returns for how long a key with this time to live has to stay listed. Whatever else is
// counted in a group of buckets relies on the group's first listing, so that has to last for as
// much longer than the key as a group lasts: a quarter of the span, which is half the time to live.
func ListTTL(ttl int64) int64 { return ttl + ttl/(2*listings) }

// listGroup returns how many buckets of the coarsest level a group has.
func listGroup(l *leaparray.Ladder) int64 { return max(1, l.Span()/l.Coarsest()/listings) }
