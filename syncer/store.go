package syncer

import (
	"context"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/store"
)

// The contract of a store, see package store.
type (
	// Store keeps the counts of record.
	Store = store.Store
	// Keeper is a Store that can determine when acknowledged counts would survive its loss.
	Keeper = store.Keeper
	// Round is one exchange with the store about one partition.
	Round = store.Round
	// KeyRound is one key's part of a round.
	KeyRound = store.KeyRound
	// Bucket is one bucket of a key, with a number.
	Bucket = store.Bucket
	// Told is a store's report of its data of a partition.
	Told = store.Told
	// Mark is the last round that a store acknowledged for one partition.
	Mark = store.Mark
)

// WholeLog is the ContentLog of a key that nobody else changes in Quiet rounds.
const WholeLog = store.WholeLog

// The errors of a round, see package store.
var (
	// ErrNotApplied means that the store certainly did not apply a round.
	ErrNotApplied = store.ErrNotApplied
	// ErrRefused is an ErrNotApplied of a store that answered.
	ErrRefused = store.ErrRefused
	// ErrLate means that a store that can be reached did not answer a round in time.
	ErrLate = store.ErrLate
)

// Lister is a Store that lists its keys, so that a key that is not listed need not be read. A Store
// that wraps a Lister must be one too.
//
// A key is listed under its KeyHash, along with every round that restores it, or that sets its time
// to live without Listed. It stays listed for at least ListTTL. So of a key that is not listed, the
// store holds nothing that a window could still reach.
type Lister interface {
	// ListKeys reads on in the lists of some partitions, and sets the outcome of each. The result
	// includes all changes that the store had made when ListKeys was called.
	ListKeys(ctx context.Context, lists []*KeyList)
}

// KeyList is a position in the list of a partition's keys, and the result of reading on from there.
type KeyList struct {
	Partition int
	// Epoch, Part and Offset are the position. They are zero for a list that was not read yet; only
	// the store can interpret them. Epoch is the epoch of the data at the time.
	Epoch, Part, Offset uint64
	// Told is the store's last report of its data of the partition; its epoch is 0 if there is
	// none.
	Told Told

	// Err is why nothing was read. It wraps errors.ErrUnsupported if the list is not complete,
	// because some of the keys are older than the list.
	Err error
	// Lost is set if the store has lost data that it had at Told. Then nothing else is set.
	Lost bool
	// Version, Quieted and LastChange are the store's state at the read, as in a Round. A store
	// that has less later has lost data, and its list may end differently.
	Version, Quieted uint64
	LastChange       string
	// Begun means that this is the beginning of the list: hashes read before are no longer part of
	// it.
	Begun bool
	// Hashes are the next hashes, in any order; some may occur more than once.
	Hashes []uint32
	// More means that the list goes on.
	More bool
}

// KeyHash returns the hash under which a key is listed. ns is empty for the default namespace. Two
// keys of a partition rarely have the same hash.
func KeyHash(ns, key []byte) uint32 { return keys.ListHash(ns, key) }

// listings is how often a continuously counted key is listed in a span of its ladder. The buckets
// of the coarsest level are divided by their index into as many groups, and a key is listed with
// its first count in a group.
const listings = 4

// ListTTL returns for how long a key with this time to live has to stay listed. All later counts in
// a group of buckets rely on the group's first listing, so the listing has to outlast the key by
// the length of a group: a quarter of the span, which is at most an eighth of the time to live.
func ListTTL(ttl int64) int64 { return ttl + ttl/(2*listings) }

// bucketsPerListGroup returns how many buckets of the coarsest level a group has.
func bucketsPerListGroup(l *leaparray.Ladder) int64 {
	return max(1, l.Span()/l.CoarsestWidth()/listings)
}

// CompanionLadders returns the ladders of companions by their namespaces. Their events lie ahead,
// so they keep their milliseconds.
func CompanionLadders() map[string]*leaparray.Ladder {
	ladders := map[string]*leaparray.Ladder{}
	for name, span := range twotier.CompanionNamespaces() {
		l, err := leaparray.NewLadder(leaparray.DefaultExact,
			leaparray.Level{Width: time.Minute, Count: int(span / time.Minute)})
		if err != nil {
			panic(err) // impossible with constant levels
		}
		ladders[name] = l
	}
	return ladders
}
