package syncer

import (
	"context"
	"errors"
)

// ErrNotApplied is wrapped by a round's error when the store certainly did not carry it out. Every other error leaves the
// outcome unknown.
var ErrNotApplied = errors.New("not applied")

// Store keeps the counts of record. It is declared here, by its only user; redisstore and internal/embedded implement it.
type Store interface {
	// Exchange carries out the rounds, in any order, and fills in the outcome of each. It returns once all are
	// answered or ctx is done, and keeps nothing of them afterwards. No two calls at a time carry rounds of one partition.
	//
	// A round is atomic, and a round with a sequence is carried out at most once: if the store has the round's sequence or
	// a later one already, it only reads. If the store has less than the round's Acked, or other data than its Epoch, it
	// has lost data: it changes nothing and reports Lost.
	Exchange(ctx context.Context, rounds []*Round)
}

// Bucket is one bucket of a key and a number.
type Bucket struct {
	// Level and Index say which bucket.
	Level uint8
	Index int64
	// N is a delta to add, or a count.
	N int64
	// Stored is set by the store in a round's Adds: what it holds after the round.
	Stored int64
}

// KeyRound is one key's part of a round. The buckets refer to the ladder of the key's namespace.
type KeyRound struct {
	// NS is empty for the default namespace.
	NS, Key []byte
	// Reset deletes the key before anything else is done with it.
	Reset bool
	// Load asks for all buckets of the key, as they are at the end of the round.
	Load bool
	// New says that the store is believed to have nothing under the key, which can make counting it cheaper.
	New bool
	// TTL is the time to live to set, in milliseconds; 0 leaves it as it is.
	TTL int64
	// Adds are added to the buckets (or, in a Republish, are what the buckets must at least hold).
	Adds []Bucket
	// Expired are buckets to delete.
	Expired []Bucket

	// Loaded are the buckets asked for with Load.
	Loaded []Bucket
	// Err says why this key alone was refused. Nothing of its part was done.
	Err error
	// Forgotten is of no concern to a store: the key was reset after the round was cut, and its outcome is moot.
	Forgotten bool

	ref     ref
	hash    uint32
	adds    int // where this key's Adds end in the round's buckets
	expired int // where its Expired end
}

// Round is one exchange with the store about one partition: deltas to count, keys to read, or both.
type Round struct {
	Partition int
	// Writer identifies the incarnation of the process that counts.
	Writer string
	// Seq numbers the rounds of a writer and partition that change something, from 1; 0 only reads.
	Seq uint64
	// Acked is the sequence up to which the store has acknowledged.
	Acked uint64
	// Epoch is what the store last said its data of the partition is, 0 if this writer has not heard of any. The store draws a
	// new one when the first round writes to a partition of which it has nothing, and answers with the one it has.
	Epoch uint64
	// Quiet says that nobody who has loaded these keys relies on Version to hear of changes: it is not counted up.
	Quiet bool
	// Republish restores counts after a loss: every bucket of Adds is raised to at least N. With Final, Acked becomes the
	// stored sequence. Epoch is the one that the answer to the part before came with, or that which reported the loss, be it 0;
	// if the store has another, everything was lost once more, and it changes nothing and reports Lost. If it has been
	// restored up to Acked already, it changes nothing either: this is a message that was late.
	Republish, Final bool
	// ReadOnly says that the round only loads keys and that Lost, Version and Epoch are not looked at, which can make it cheaper.
	ReadOnly bool
	Keys     []KeyRound

	// Err is nil, wraps ErrNotApplied, or leaves the outcome unknown.
	Err error
	// Lost is set if the store has less than Acked, or other data than that of Epoch.
	Lost bool
	// Version counts the changes that all writers made to the partition, this round included.
	Version uint64

	buckets []Bucket
	names   []byte
	through uint64 // tickets of dirty keys up to this one are covered once the round is acknowledged
	wants   map[string]*want
}

// reset empties the round, keeping its memory.
func (r *Round) reset() {
	*r = Round{Keys: r.Keys[:0], buckets: r.buckets[:0], names: r.names[:0]}
}

// addKey appends a key, reusing memory of an earlier use of the round.
func (r *Round) addKey(ns, key []byte) *KeyRound {
	if len(r.Keys) < cap(r.Keys) {
		r.Keys = r.Keys[:len(r.Keys)+1]
	} else {
		r.Keys = append(r.Keys, KeyRound{})
	}
	k := &r.Keys[len(r.Keys)-1]
	*k = KeyRound{Loaded: k.Loaded[:0]}
	// A name may move when names grows: earlier views keep the old memory alive, which still holds the same bytes.
	at := len(r.names)
	r.names = append(append(r.names, ns...), key...)
	k.NS = r.names[at : at+len(ns) : at+len(ns)]
	k.Key = r.names[at+len(ns) : len(r.names) : len(r.names)]
	return k
}

// onlyUnknown reports whether memory knows nothing of the round's keys. To load one that it knows, the store must say that
// it has lost nothing: else what it no longer has would replace what memory still has to tell it.
func (r *Round) onlyUnknown() bool {
	for i := range r.Keys {
		if r.Keys[i].ref != 0 {
			return false
		}
	}
	return true
}

// seal points every key at its buckets, which no longer move, and reports whether the round changes anything.
func (r *Round) seal() (changes bool) {
	at := 0
	for i := range r.Keys {
		k := &r.Keys[i]
		k.Adds = r.buckets[at:k.adds:k.adds]
		k.Expired = r.buckets[k.adds:k.expired:k.expired]
		at = k.expired
		changes = changes || k.Reset || k.TTL > 0
	}
	return changes || len(r.buckets) > 0
}
