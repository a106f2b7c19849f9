package syncer

import (
	"context"
	"errors"
	"fmt"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// ErrNotApplied is wrapped by a round's error when the store certainly did not carry it out. Every
// other error leaves the outcome unknown.
var ErrNotApplied = errors.New("not applied")

// ErrRefused is an ErrNotApplied: the store answered, and refuses the round. A store that is full
// refuses to write and can still be read, so a refused flush says nothing of whether it is there.
var ErrRefused = fmt.Errorf("refused: %w", ErrNotApplied)

// Store keeps the counts of record. It is declared here, by its only user; redisstore and
// internal/embedded implement it.
type Store interface {
	// Exchange carries out the rounds, in any order, and fills in the outcome of each. It returns
	// once all are answered or ctx is done, and keeps nothing of them afterwards. Calls may
	// overlap. Of one partition at most one round is under way at a time, and beside it at most one
	// more that is Aside.
	//
	// A round is atomic, and a round with a sequence is carried out at most once: if the store has
	// the round's sequence or a later one already, it only reads. A store that has less than the
	// round says that it was told (Acked, Version, Quieted, LastChange), or other data (Epoch), has
	// lost data: it changes nothing and reports Lost.
	Exchange(ctx context.Context, rounds []*Round)
}

// Ager is a Store that may delete buckets by their age, whether or not newer ones came. One that
// wraps it must say so, too.
type Ager interface {
	Aging() bool
}

// Mark is the last round with a sequence that a store has acknowledged to a counter, of one
// partition: what has that has all before it. Seq is 0 if there was none.
type Mark struct {
	Partition int
	Writer    string
	Seq       uint64
}

// Keeper is a Store that can tell when what it has acknowledged would outlive it. ack is AckReplica
// or AckDisk.
type Keeper interface {
	// Keeps returns nil if ack can be waited for by what is counted in the partitions, in all of
	// them if none is named; an *InvalidError if the store or its configuration can't do that, or
	// an error that wraps ErrUnavailable if it can't just now.
	Keeps(ctx context.Context, ack Ack, partitions ...int) error
	// Keep waits until everything up to the marks is kept as ack says. It returns an error for each
	// mark, in their order, or nil if all are kept. One that is not nil wraps ErrUnknownOutcome: it
	// is not kept yet when ctx is done, or the store has lost it already.
	Keep(ctx context.Context, ack Ack, marks []Mark) []error
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
	// New says that the store is believed to have nothing under the key, which can make counting it
	// cheaper.
	New bool
	// TTL is the time to live to set, in milliseconds; 0 leaves it as it is.
	TTL int64
	// Adds are added to the buckets (or, in a Republish, are what the buckets held).
	Adds []Bucket
	// Expired are buckets to delete.
	Expired []Bucket
	// Ladder, if it is there, bounds what the store keeps of the key: when it holds more buckets
	// than Ladder.Most, those that have fallen behind the newest of their level by more than is
	// kept are deleted, whoever left them there.
	Ladder *leaparray.Ladder

	// Loaded are the buckets asked for with Load. One that holds no number is said to hold NoCount.
	Loaded []Bucket
	// Err says why this key alone was refused. Nothing of its part was done.
	Err error
	// Forgotten is of no concern to a store: the key was reset after the round was cut, and its
	// outcome is moot.
	Forgotten bool

	ref     arena.Ref
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
	// Nonce is drawn when the round is cut. It tells the round from another that was cut under the
	// same name and number, by a process that was given the name of this one or is a copy of it.
	Nonce uint64
	// Acked is the sequence up to which the store has acknowledged, in this epoch.
	Acked uint64
	// Epoch is what the store last said its data of the partition is, 0 if this writer has not
	// heard of any: then a store that has nothing of the partition draws one, though the round only
	// read. Version and Quieted are how many changes it said that all writers had made: those that
	// are heard of and those that are not. The answer tells what they are now, this round included.
	Epoch, Version, Quieted uint64
	// LastChange is what the store last said, along with these, of the last round with a sequence
	// that is part of its data, of whichever writer: "" if there is none. Only the store can read
	// it. Data that lacks that round was lost, however many changes have come in its place since.
	LastChange string
	// Quiet says that nobody who has loaded these keys relies on Version to hear of changes:
	// Quieted is counted up instead.
	Quiet bool
	// Republish restores counts after a loss: what Adds say is what the buckets held in an earlier
	// epoch. The store remembers for as long as its epoch lasts how much of each bucket was
	// restored, and adds what is missing of it: the sum is right whoever restores first, and
	// whatever was counted since. In an epoch that began with what a loss left, what is found in a
	// bucket counts as restored. A key that was reset in this epoch stays as it is. Stored tells
	// what the buckets hold then. The parts of a restoration have sequences as other rounds do, by
	// which it is noticed that some of them are lost although as many changes of others came in
	// their place.
	Republish bool
	// After is the epoch in which the counts that are republished were known. If Epoch is not above
	// it, the store draws a new one, which is, so that all hear of the loss.
	After uint64
	// ReadOnly says that the round only loads keys and that its writer knows of no data or of the
	// Epoch's: then Acked need not be looked at and no epoch drawn, which can make it cheaper.
	// Version and Quieted count all changes that are part of what is loaded.
	ReadOnly bool
	// Aside says that the round, whose Seq is 0, may be under way at the same time as another of
	// the partition. What it brings of keys that the other changes means nothing to its sender. Its
	// Acked may be that from before the other was answered.
	Aside bool
	Keys  []KeyRound

	// Err is nil, wraps ErrNotApplied, or leaves the outcome unknown.
	Err error
	// Lost is set if the store has lost data.
	Lost bool
	// Used is set if the store has carried out another round under this name and number, with
	// another Nonce, and Later if it has carried out later ones. In the first case this one was
	// certainly not carried out.
	Used, Later bool

	buckets []Bucket
	names   []byte
	// throughTicket is the last ticket of a dirty key that is covered once the round is
	// acknowledged.
	throughTicket uint64
	most          int  // keys that it may have
	imported      bool // another counter cut it
	// outcomeUnknown: it was sent and not answered. It may have been carried out, or still be.
	outcomeUnknown bool
	loads          map[string]*pendingLoad
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
	// A name may move when names grows: earlier views keep the old memory alive, which still holds
	// the same bytes.
	at := len(r.names)
	r.names = append(append(r.names, ns...), key...)
	k.NS = r.names[at : at+len(ns) : at+len(ns)]
	k.Key = r.names[at+len(ns) : len(r.names) : len(r.names)]
	return k
}

// seal points every key at its buckets, which no longer move, and reports whether the round changes
// anything.
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
